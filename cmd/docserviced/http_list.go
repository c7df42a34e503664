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

// exportPatience is how long the reader of an export may leave it lying. An
// export keeps what the index had in memory when it began, so it is cut off then.
const exportPatience = 30 * time.Second

// exportBufferBytes is how much of an export is gathered before it is sent.
const exportBufferBytes = 64 << 10

// exportBytes is what an export holds: the documents that it reads together, while their
// buffer grows.
const exportBytes = 8 << 20

// errPageEnds ends a scan behind the ids that were wanted.
var errPageEnds = errors.New("the page is full")

// listing is what the three questions about many ids have in common.
type listing struct {
	collection *docservice.Collection
	options    docservice.ScanOptions
}

// parseListing reads a request's path and query. It answers what is wrong with
// them and then returns false.
func (d *daemon) parseListing(w http.ResponseWriter, r *http.Request, allowed ...string) (l listing, ok bool) {
	name := r.PathValue("collection")
	if l.collection = d.collection(name); l.collection == nil {
		http.Error(w, fmt.Sprintf("there is no collection %q here", name), http.StatusNotFound)
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

// serveIDs lists ids, a page a request: {"ids":[...],"next":"/collections/..."},
// where next is the request for the next page. An id that is not UTF-8 is
// {"id_base64":"..."}.
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
	_, _ = w.Write(append(body, "}\n"...)) // who has hung up has nothing to be told
}

// appendListedID appends an id as a string of JSON, or what stands for one that
// no such string can be.
func appendListedID(dst []byte, id string) []byte {
	field := cli.AppendID(nil, id)
	if value, isText := bytes.CutPrefix(field, []byte(`"id":`)); isText {
		return append(dst, value...)
	}
	return append(append(append(dst, '{'), field...), '}')
}

// serveCount counts the ids that begin with a prefix: {"count":17}.
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
	_, _ = fmt.Fprintf(w, "{\"count\":%d}\n", count) // who has hung up has nothing to be told
}

// serveExport writes the documents of one moment, a line each as boxcar mget
// does. Where it has to stop in the middle it breaks the connection off, so that
// nobody takes a part for the whole.
func (d *daemon) serveExport(w http.ResponseWriter, r *http.Request) {
	l, ok := d.parseListing(w, r, "prefix", "after", "limit")
	if !ok {
		return
	}
	if !reserve(w, r, exportBytes) {
		return
	}
	patient := &patientWriter{to: w, control: http.NewResponseController(w)}
	out := bufio.NewWriterSize(patient, exportBufferBytes)
	var line []byte
	most := exportBytes // held so far
	w.Header().Set("Content-Type", "application/x-ndjson")
	err := l.collection.Scan(r.Context(), l.options, func(id []byte, answer docservice.Answer) error {
		if answer.Err != nil {
			line = cli.AppendNotFound(line[:0], string(id), answer.Err.Error())
		} else {
			line = cli.AppendFound(line[:0], string(id), answer.Document)
		}
		if held := exportBytes + cap(line) + 2*len(answer.Document); held > most {
			most = held
			boxcarrpc.Hold(r.Context(), most)
		}
		_, err := out.Write(line)
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		d.endExport(w, patient, l.collection.Name(), err)
	}
}

// endExport ends one that has failed.
func (d *daemon) endExport(w http.ResponseWriter, patient *patientWriter, collection string, err error) {
	if patient.begun {
		d.env.Log.Warn("an export was broken off", "collection", collection, "error", err)
		panic(http.ErrAbortHandler)
	}
	status, text := answerStatus(err)
	http.Error(w, text, status)
}

// patientWriter writes a response of any length, as long as each part of it is
// taken within exportPatience.
type patientWriter struct {
	to      http.ResponseWriter
	control *http.ResponseController
	begun   bool // a part has been sent, and with it the status
}

func (p *patientWriter) Write(b []byte) (int, error) {
	p.begun = true
	if err := p.control.SetWriteDeadline(time.Now().Add(exportPatience)); err != nil {
		return 0, err
	}
	return p.to.Write(b)
}
