package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server/internal/httpapi"
	"docstore/internal/ndjson"
)

// exportStallTimeout is how long the reader of an export may block it. An export pins the
// memtables of its start, so a stalled one is aborted.
const exportStallTimeout = 30 * time.Second

// exportBufferBytes is the size of the buffer of an export.
const exportBufferBytes = 64 << 10

// errPageEnds ends a scan after the requested ids.
var errPageEnds = errors.New("the page is full")

// lister returns the ids of the collection or shard of that name, nil if there is none.
func (s *Server) lister(name string) Lister {
	if h := s.heldCollection(name); h != nil {
		return h.Lister()
	}
	if c := s.Collection(name); c != nil {
		return c
	}
	return nil
}

// listing holds the parameters of ids, count and export.
type listing struct {
	collection Lister
	options    docservice.ScanOptions
}

// parseListing parses path and query of a request for a list of that type. On error it
// answers and returns false. For HEAD it answers too, with the status of the first id, because
// the list itself may be that of a whole collection.
func (s *Server) parseListing(w http.ResponseWriter, r *http.Request, contentType string, allowed ...string) (l listing, ok bool) {
	name := r.PathValue("collection")
	if l.collection = s.lister(name); l.collection == nil {
		httpapi.Errorf(httpapi.CodeNoCollection, "no collection %q", name).Write(w)
		return l, false
	}
	if err := s.Authorize(r.Context(), name); err != nil {
		httpapi.Errorf(httpapi.CodeForbidden, "%v", err).Write(w)
		return l, false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil {
		err = l.parse(query, allowed)
	}
	if err != nil {
		httpapi.Errorf(httpapi.CodeInvalidArgument, "%v", err).Write(w)
		return l, false
	}
	w.Header().Set("Content-Type", contentType)
	if r.Method != http.MethodHead {
		return l, true
	}
	l.options.IDsOnly, l.options.Limit = true, 1
	if err := l.collection.Scan(r.Context(), l.options, func([]byte, collection.Answer) error { return nil }); err != nil {
		answerError(err).Write(w)
	}
	return l, false
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
func (s *Server) serveIDs(w http.ResponseWriter, r *http.Request) {
	l, ok := s.parseListing(w, r, "application/json", "prefix", "after", "limit")
	if !ok {
		return
	}
	limit := l.options.Limit
	if limit == 0 {
		limit = docservice.DefaultScanIDs
	}
	if limit > docservice.MaxScanIDs {
		httpapi.Errorf(httpapi.CodeInvalidArgument, "limit=%d: at most %d; follow \"next\" for more, or use export", limit, docservice.MaxScanIDs).Write(w)
		return
	}
	l.options.IDsOnly, l.options.Limit = true, 0
	body, shown, last := []byte(`{"ids":[`), 0, ""
	err := l.collection.Scan(r.Context(), l.options, func(id []byte, _ collection.Answer) error {
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
		answerError(err).Write(w)
		return
	}
	budget.Hold(r.Context(), cap(body))
	body = append(body, ']')
	if err != nil {
		query := url.Values{"after": {last}, "limit": {strconv.Itoa(limit)}}
		if len(l.options.Prefix) > 0 {
			query.Set("prefix", string(l.options.Prefix))
		}
		body = ndjson.AppendString(append(body, `,"next":`...), r.URL.Path+"?"+query.Encode())
	}
	_, _ = w.Write(append(body, "}\n"...)) // the client may have disconnected
}

// appendListedID appends an id as a JSON string, or as id_base64 if it is not UTF-8.
func appendListedID(dst []byte, id string) []byte {
	field := ndjson.AppendID(nil, id)
	if value, isText := bytes.CutPrefix(field, []byte(`"id":`)); isText {
		return append(dst, value...)
	}
	return append(append(append(dst, '{'), field...), '}')
}

// serveCount counts the ids with a prefix: {"count":17}.
func (s *Server) serveCount(w http.ResponseWriter, r *http.Request) {
	l, ok := s.parseListing(w, r, "application/json", "prefix")
	if !ok {
		return
	}
	count, err := l.collection.Count(r.Context(), l.options.Prefix)
	if err != nil {
		answerError(err).Write(w)
		return
	}
	_, _ = fmt.Fprintf(w, "{\"count\":%d}\n", count) // the client may have disconnected
}

// serveExport writes the documents of one moment as lines in the format of boxcar mget. On
// an error in the middle it aborts the connection, so that the client detects the
// incomplete export.
func (s *Server) serveExport(w http.ResponseWriter, r *http.Request) {
	l, ok := s.parseListing(w, r, "application/x-ndjson", "prefix", "after", "limit")
	if !ok {
		return
	}
	own := exportBufferBytes + collection.ScanMemory(r.Context())
	if _, local := l.collection.(*collection.Collection); !local {
		own = exportBufferBytes // the servers of the shards reserve the rest, maybe in the same budget
	}
	if !reserve(w, r, own) {
		return
	}
	patient := &deadlineWriter{to: w, control: http.NewResponseController(w)}
	out := bufio.NewWriterSize(patient, exportBufferBytes)
	var line []byte
	most := own // reserved so far
	err := l.collection.Scan(r.Context(), l.options, func(id []byte, answer collection.Answer) error {
		err := budget.Compute(r.Context(), len(answer.Document), func() {
			if answer.Err != nil {
				line = ndjson.AppendFailed(line[:0], string(id), docservice.AnswerCode(answer.Err), answer.Err.Error())
			} else {
				line = ndjson.AppendFound(line[:0], string(id), answer.Document)
			}
		})
		if err != nil {
			return err
		}
		if held := own + cap(line) + 2*len(answer.Document); held > most {
			most = held
			budget.Hold(r.Context(), most)
		}
		_, err = out.Write(line)
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		endLines(w, patient, s.options.Logger.With("collection", l.collection.Name()), err)
	}
}

// endLines ends a response of lines that failed.
func endLines(w http.ResponseWriter, patient *deadlineWriter, log *slog.Logger, err error) {
	if patient.begun {
		log.Warn("a response over HTTP was aborted", "error", err)
		panic(http.ErrAbortHandler)
	}
	answerError(err).Write(w)
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
