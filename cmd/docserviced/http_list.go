package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
)

// exportStallTimeout is how long the reader of an export may block it. An export pins the
// memtables of its start, so a stalled one is aborted.
const exportStallTimeout = 30 * time.Second

// exportBufferBytes is the size of the buffer of an export.
const exportBufferBytes = 64 << 10

// exportBytes is the memory of an export: the documents that it reads together, while their
// buffer grows.
const exportBytes = 8 << 20

// errPageEnds ends a scan after the requested ids.
var errPageEnds = errors.New("the page is full")

// listing holds the parameters of ids, count and export.
type listing struct {
	collection *docservice.Collection
	options    docservice.ScanOptions
}

// parseListing parses path and query of a request. On error it answers and returns false.
func (d *daemon) parseListing(w http.ResponseWriter, r *http.Request, allowed ...string) (l listing, ok bool) {
	name := r.PathValue("collection")
	if l.collection = d.collection(name); l.collection == nil {
		http.Error(w, fmt.Sprintf("no collection %q", name), http.StatusNotFound)
		return l, false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil {
		err = l.parse(query, allowed)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return l, false
	}
	return l, true
}

func (l *listing) parse(query url.Values, allowed []string) error {
	known := map[string]bool{}
	for _, name := range allowed {
		known[name] = true
	}
	for name, values := range query {
		if !known[name] || len(values) > 1 {
			return fmt.Errorf("parameter %q: want each of %v at most once", name, allowed)
		}
	}
	l.options.Prefix, l.options.After = []byte(query.Get("prefix")), []byte(query.Get("after"))
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return fmt.Errorf("limit=%s: want a number from 1", text)
		}
		l.options.Limit = limit
	}
	return nil
}

// serveIDs lists ids, one page per request: {"ids":[...],"next":"/collections/..."}, where
// next is the URL of the next page. An id that is not UTF-8 is {"id_base64":"..."}.
func (d *daemon) serveIDs(w http.ResponseWriter, r *http.Request) {
	l, ok := d.parseListing(w, r, "prefix", "after", "limit")
	if !ok {
		return
	}
	limit := l.options.Limit
	if limit == 0 {
		limit = docservice.DefaultScanIDs
	}
	if limit > docservice.MaxScanIDs {
		http.Error(w, fmt.Sprintf("limit=%d: at most %d; follow \"next\" for more, or use export", limit, docservice.MaxScanIDs), http.StatusBadRequest)
		return
	}
	l.options.IDsOnly, l.options.Limit = true, 0
	body, shown, last := []byte(`{"ids":[`), 0, ""
	err := l.collection.Scan(r.Context(), l.options, func(id []byte, _ docservice.Answer) error {
		if shown == limit {
			return errPageEnds
		}
		if shown > 0 {
			body = append(body, ',')
		}
		shown, last = shown+1, string(id)
		body = appendListedID(body, last)
		return nil
	})
	if err != nil && !errors.Is(err, errPageEnds) {
		status, text := answerStatus(err)
		http.Error(w, text, status)
		return
	}
	boxcarrpc.Hold(r.Context(), cap(body))
	body = append(body, ']')
	if err != nil {
		query := url.Values{"after": {last}, "limit": {strconv.Itoa(limit)}}
		if len(l.options.Prefix) > 0 {
			query.Set("prefix", string(l.options.Prefix))
		}
		body = cli.AppendString(append(body, `,"next":`...), r.URL.Path+"?"+query.Encode())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, "}\n"...)) // the client may have disconnected
}

// appendListedID appends an id as a JSON string, or as id_base64 if it is not UTF-8.
func appendListedID(dst []byte, id string) []byte {
	field := cli.AppendID(nil, id)
	if value, isText := bytes.CutPrefix(field, []byte(`"id":`)); isText {
		return append(dst, value...)
	}
	return append(append(append(dst, '{'), field...), '}')
}

// serveCount counts the ids with a prefix: {"count":17}.
func (d *daemon) serveCount(w http.ResponseWriter, r *http.Request) {
	l, ok := d.parseListing(w, r, "prefix")
	if !ok {
		return
	}
	count, err := l.collection.Count(r.Context(), l.options.Prefix)
	if err != nil {
		status, text := answerStatus(err)
		http.Error(w, text, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, "{\"count\":%d}\n", count) // the client may have disconnected
}

// serveExport writes the documents of one moment as lines in the format of boxcar mget. On
// an error in the middle it aborts the connection, so that the client detects the
// incomplete export.
func (d *daemon) serveExport(w http.ResponseWriter, r *http.Request) {
	l, ok := d.parseListing(w, r, "prefix", "after", "limit")
	if !ok {
		return
	}
	if !reserve(w, r, exportBytes) {
		return
	}
	patient := &deadlineWriter{to: w, control: http.NewResponseController(w)}
	out := bufio.NewWriterSize(patient, exportBufferBytes)
	var line []byte
	most := exportBytes // reserved so far
	w.Header().Set("Content-Type", "application/x-ndjson")
	err := l.collection.Scan(r.Context(), l.options, func(id []byte, answer docservice.Answer) error {
		err := boxcarrpc.Compute(r.Context(), len(answer.Document), func() {
			if answer.Err != nil {
				line = cli.AppendNotFound(line[:0], string(id), answer.Err.Error())
			} else {
				line = cli.AppendFound(line[:0], string(id), answer.Document)
			}
		})
		if err != nil {
			return err
		}
		if held := exportBytes + cap(line) + 2*len(answer.Document); held > most {
			most = held
			boxcarrpc.Hold(r.Context(), most)
		}
		_, err = out.Write(line)
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		d.endExport(w, patient, l.collection.Name(), err)
	}
}

// endExport ends a failed export.
func (d *daemon) endExport(w http.ResponseWriter, patient *deadlineWriter, collection string, err error) {
	if patient.begun {
		d.env.Log.Warn("an export was aborted", "collection", collection, "error", err)
		panic(http.ErrAbortHandler)
	}
	status, text := answerStatus(err)
	http.Error(w, text, status)
}

// deadlineWriter writes a response of any length, if the client reads each part within
// exportStallTimeout.
type deadlineWriter struct {
	to      http.ResponseWriter
	control *http.ResponseController
	begun   bool // a part, and with it the status, has been sent
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	p.begun = true
	if err := p.control.SetWriteDeadline(time.Now().Add(exportStallTimeout)); err != nil {
		return 0, err
	}
	return p.to.Write(b)
}
