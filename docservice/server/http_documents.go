package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/internal/wire"
	"docstore/docservice/server/internal/httpapi"
	"docstore/internal/ndjson"
	"docstore/internal/units"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// Limits of a batch over HTTP. A batch has at most docservice.MaxBatchIDs ids.
const (
	batchBodyBytes   = 4 << 20 // as of a request over gRPC
	batchWindowIDs   = 256     // documents fetched together
	batchBufferBytes = 32 << 10
)

// documentAPI serves documents of a Router.
type documentAPI struct {
	router   collection.Router
	cache    *stored.DecoderCache
	log      *slog.Logger
	memories sync.Pool // of *documentMemory

	mu struct {
		sync.RWMutex
		decoders map[string]*stored.Decoders // by collection
	}
}

func newDocumentAPI(d *Server) *documentAPI {
	a := &documentAPI{router: d.httpRouter(), cache: d.collections.Decoders, log: d.options.Logger}
	a.memories.New = func() any { return new(documentMemory) }
	a.mu.decoders = make(map[string]*stored.Decoders)
	return a
}

// serve answers GET /documents/COLLECTION/ID and POST /documents/COLLECTION. The id is the
// rest of the path, unescaped, slashes included.
func (a *documentAPI) serve(w http.ResponseWriter, r *http.Request) {
	name, escaped, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), documentsPath), "/")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		id, err := url.PathUnescape(escaped)
		if err != nil {
			httpapi.Errorf(httpapi.CodeInvalidArgument, "the id in the path: %v", err).Write(w)
			return
		}
		a.serveDocument(w, r, name, id)
	case http.MethodPost:
		if escaped != "" {
			httpapi.NotAllowed(w, r, "GET, HEAD")
			return
		}
		a.serveBatch(w, r, name)
	default:
		allow := "GET, HEAD"
		if escaped == "" {
			allow = "POST"
		}
		httpapi.NotAllowed(w, r, allow)
	}
}

// decodersOf returns the decoders of a collection that exists.
func (a *documentAPI) decodersOf(name string) *stored.Decoders {
	a.mu.RLock()
	d := a.mu.decoders[name]
	a.mu.RUnlock()
	if d != nil {
		return d
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if d = a.mu.decoders[name]; d == nil {
		d = stored.NewDecoders(a.cache, func(ctx context.Context, hash codec.DictionaryHash) ([]byte, error) {
			return a.router.Dictionary(ctx, []byte(name), hash)
		})
		a.mu.decoders[name] = d
	}
	return d
}

// maxKeptBytes is the maximum size of the buffers that a request leaves to the next.
const maxKeptBytes = 64 << 10

// documentMemory holds the buffers of a request for a document.
type documentMemory struct {
	name, id []byte
	sent     []byte // the document as the router returned it
	plain    []byte // decoded
}

// held returns the size of the buffers.
func (m *documentMemory) held() int { return cap(m.sent) + cap(m.plain) }

// content is a document that a router returned.
type content struct {
	form  stored.Form // zero if the router decoded the document
	plain []byte      // or nil
}

func (c *content) isStored() bool { return c.form.Bytes != nil }

// bytes returns the size of the decoded document.
func (c *content) bytes() int {
	if c.isStored() {
		return c.form.RawBytes()
	}
	return len(c.plain)
}

// version identifies the version of a document: address and checksum are the same on all
// servers. It is empty if the router did not return them.
func (c *content) version() string {
	if !c.isStored() {
		return ""
	}
	var text [4*10 + 4]byte
	b := strconv.AppendUint(text[:0], uint64(c.form.Address.Segment), 10)
	b = strconv.AppendUint(append(b, '-'), uint64(c.form.Address.Block), 10)
	b = strconv.AppendUint(append(b, '-'), uint64(c.form.Address.Index), 10)
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], c.form.Checksum())
	return string(hex.AppendEncode(append(b, '-'), sum[:]))
}

// serveDocument returns a document, or a part of it, under the conditions of the request, as
// RFC 9110, sections 13 and 14, specifies. A part is that of the document without a coding.
// There is no date of a change for the conditions by date.
func (a *documentAPI) serveDocument(w http.ResponseWriter, r *http.Request, name, id string) {
	m := a.memories.Get().(*documentMemory)
	defer func() {
		if m.held() <= maxKeptBytes {
			a.memories.Put(m)
		}
	}()
	m.name, m.id = append(m.name[:0], name...), append(m.id[:0], id...)
	coding := httpapi.Negotiate(r.Header["Accept-Encoding"])
	ranges := r.Header["Range"]
	if r.Method != http.MethodGet {
		ranges = nil
	}
	if len(ranges) > 0 {
		coding = httpapi.Identity
	}
	c, err := a.fetch(r.Context(), m, coding)
	if err != nil {
		answerError(err).Write(w)
		return
	}
	header := w.Header()
	varyByCoding(header)
	header["Cache-Control"] = mustRevalidate
	version, ifMatch := c.version(), r.Header["If-Match"]
	if len(ifMatch) == 0 && notModified(w, r, version) { // before the document is decoded
		return
	}
	var body transferred
	var failed error
	err = budget.Compute(r.Context(), c.bytes(), func() { body, failed = a.transfer(r.Context(), m, c, coding) })
	if err == nil {
		err = failed
	}
	if err != nil {
		answerError(err).Write(w)
		return
	}
	budget.Hold(r.Context(), max(httpRequestBytes, m.held()+cap(body.bytes)))
	body.send(w, r, version, ranges)
}

// Values of headers of all responses with documents. net/http does not modify them.
var (
	variesByCoding = []string{"Accept-Encoding"}
	mustRevalidate = []string{"no-cache"} // a document can change at any time
	bytesAccepted  = []string{"bytes"}
	noSniffing     = []string{"nosniff"}
	jsonType       = []string{"application/json"}
	unknownType    = []string{"application/octet-stream"}
)

// send writes the response, or the error that the conditions of the request demand.
func (t *transferred) send(w http.ResponseWriter, r *http.Request, version string, ranges []string) {
	header, tag := w.Header(), ""
	if version != "" {
		tag = httpapi.ETag(version, t.coding)
	}
	if ifMatch := r.Header["If-Match"]; len(ifMatch) > 0 {
		if !httpapi.AllowsMatch(ifMatch, tag) {
			httpapi.Errorf(httpapi.CodePrecondition, "the document does not have an entity tag of If-Match").Write(w)
			return
		}
		if notModified(w, r, version) {
			return
		}
	}
	status := http.StatusOK
	if ifRange := r.Header.Get("If-Range"); ifRange == "" || ifRange == tag {
		size := len(t.bytes)
		part, ok, refused := httpapi.ParseRange(ranges, size)
		if refused != nil {
			refused.WriteRange(w, size)
			return
		}
		if ok {
			status = http.StatusPartialContent
			header.Set("Content-Range", part.ContentRange(size))
			t.bytes = t.bytes[part.First:][:part.Length]
		}
	}
	values := [...]string{tag, strconv.Itoa(len(t.magic) + len(t.bytes))}
	if tag != "" {
		header["Etag"] = values[:1:1]
	}
	header["Accept-Ranges"] = bytesAccepted
	header["Content-Type"] = unknownType
	if t.isJSON {
		header["Content-Type"] = jsonType
	}
	header["X-Content-Type-Options"] = noSniffing
	header["Content-Length"] = values[1:]
	if t.coding != httpapi.Identity {
		header.Set("Content-Encoding", string(t.coding))
	}
	w.WriteHeader(status)
	if t.magic != "" {
		_, _ = io.WriteString(w, t.magic) // the client may have disconnected
	}
	_, _ = w.Write(t.bytes) // likewise
}

// notModified answers 304 if If-None-Match has the version, in any coding, and reports whether it
// did.
func notModified(w http.ResponseWriter, r *http.Request, version string) bool {
	tag, ok := httpapi.MatchETag(r.Header["If-None-Match"], version)
	if !ok {
		return false
	}
	if version != "" {
		w.Header().Set("ETag", tag)
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// fetch fetches the document with the id of m and reserves memory for it, its decoded form, and
// its compressed form if there is a coding. While it waits for memory it holds none.
func (a *documentAPI) fetch(ctx context.Context, m *documentMemory, coding httpapi.Coding) (c content, err error) {
	if !wire.ValidIDBytes(len(m.id)) {
		return content{}, docservice.ErrBadID
	}
	for {
		var asStored bool
		if m.sent, asStored, err = a.router.Get(ctx, m.name, m.id, codec.Built(), m.sent[:0]); err != nil {
			return content{}, err
		}
		if c = (content{plain: m.sent}); asStored {
			form, err := stored.Parse(m.sent, m.id)
			if err != nil {
				return content{}, err
			}
			c = content{form: form}
		}
		expected := cap(m.sent) + c.bytes()
		if coding != httpapi.Identity {
			expected += c.bytes()
		}
		if budget.TryReserve(ctx, expected) {
			return c, nil
		}
		m.sent, m.plain = nil, nil
		budget.Hold(ctx, httpRequestBytes)
		if err := reserveMemory(ctx, expected); err != nil {
			return content{}, err
		}
	}
}

// reserveMemory waits up to httpMemoryWait for memory.
func reserveMemory(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, httpMemoryWait)
	defer cancel()
	return budget.Reserve(ctx, n)
}

// transferred is the body of a response: magic, then bytes.
type transferred struct {
	magic  string
	bytes  []byte
	coding httpapi.Coding
	isJSON bool
}

// transfer decodes a document, to learn whether it is JSON, and returns it in the coding. A
// document that is stored as a zstd frame is not compressed again.
func (a *documentAPI) transfer(ctx context.Context, m *documentMemory, c content, coding httpapi.Coding) (transferred, error) {
	document := c.plain
	if c.isStored() {
		var err error
		if m.plain, err = a.decodersOf(string(m.name)).Decode(ctx, m.plain[:0], c.form); err != nil {
			return transferred{}, err
		}
		document = m.plain
	}
	t := transferred{isJSON: ndjson.Valid(document)}
	if coding == httpapi.Zstd && c.isStored() && len(document) <= httpapi.MaxZstdWindowBytes {
		var ok bool
		if t.magic, t.bytes, ok = c.form.ZstdFrame(); ok {
			t.coding = httpapi.Zstd
			return t, nil
		}
	}
	t.bytes, t.coding = coding.Compress(document)
	return t, nil
}

// serveBatch returns the documents with the ids in the body of the request as lines in the
// format of boxcar mget, in the order of the ids. On an error in the middle it aborts the
// connection, so that the client detects the incomplete response.
func (a *documentAPI) serveBatch(w http.ResponseWriter, r *http.Request, name string) {
	ids, err := readIDs(w, r)
	if err != nil {
		err.Write(w)
		return
	}
	b := batchResponse{api: a, collection: name, held: httpRequestBytes + batchBufferBytes, request: r}
	for _, id := range ids {
		b.held += len(id)
	}
	coding := httpapi.Negotiate(r.Header.Values("Accept-Encoding"))
	if coding != httpapi.Identity {
		b.held += httpapi.CompressorBytes
	}
	if !reserve(w, r, b.held) {
		return
	}
	patient := &deadlineWriter{to: w, control: http.NewResponseController(w)}
	buffer := bufio.NewWriterSize(patient, batchBufferBytes)
	coded := coding.NewWriter(buffer)
	b.out = coded
	header := w.Header()
	header.Set("Content-Type", "application/x-ndjson")
	varyByCoding(header)
	if coding != httpapi.Identity {
		header.Set("Content-Encoding", string(coding))
	}
	failed := b.write(ids)
	if closed := coded.Close(); failed == nil {
		failed = closed
	}
	if failed == nil {
		failed = buffer.Flush()
	}
	if failed != nil {
		endLines(w, patient, a.log.With("collection", name), failed)
	}
}

// readIDs reads the ids in the body of a request.
func readIDs(w http.ResponseWriter, r *http.Request) ([]string, *httpapi.Error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, httpapi.Errorf(httpapi.CodeUnsupported, "Content-Encoding %.20q: send the ids uncompressed", coding)
	}
	tooLarge := httpapi.Errorf(httpapi.CodeTooLarge, "the body has more than %s; send several requests", units.FormatBytes(batchBodyBytes))
	length := r.ContentLength
	switch {
	case length > batchBodyBytes:
		return nil, tooLarge
	case length < 0: // not known yet
		length = batchBodyBytes
	}
	// The ids are about as long as the body, and have a header of 16 bytes each.
	ctx, cancel := context.WithTimeout(r.Context(), httpMemoryWait)
	defer cancel()
	if err := budget.Reserve(ctx, 3*int(length)); err != nil {
		return nil, httpapi.Errorf(httpapi.CodeUnavailable, noMemory)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, batchBodyBytes))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded): // its text contains addresses
		return nil, httpapi.Errorf(httpapi.CodeTimeout, "the body did not arrive within %s; send it again", httpReadTimeout)
	case err != nil:
		return nil, httpapi.Errorf(httpapi.CodeInvalidArgument, "reading the ids: %v", err)
	}
	ids, err := httpapi.ParseIDs(body, docservice.MaxBatchIDs)
	var malformed *httpapi.Error
	switch {
	case errors.As(err, &malformed):
		return nil, malformed
	case len(ids) == 0:
		return nil, httpapi.Errorf(httpapi.CodeInvalidArgument, `the body has no ids; send ["ID",...], or one JSON string a line`)
	}
	return ids, nil
}

// batchResponse writes the documents of a batch.
type batchResponse struct {
	request    *http.Request
	api        *documentAPI
	collection string
	out        io.Writer
	held       int // memory besides that of a window
	line       []byte

	// The memory of a window.
	keys    []byte // the ids, concatenated
	ids     [][]byte
	answers collection.Answers
	fetched []byte
	plain   []byte
}

// write writes a line for each id.
func (b *batchResponse) write(ids []string) error {
	for len(ids) > 0 {
		n, err := b.window(ids[:min(len(ids), batchWindowIDs)])
		if err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// window fetches the first ids together, writes their lines and returns their number.
func (b *batchResponse) window(ids []string) (int, error) {
	b.ids, b.keys = b.ids[:0], b.keys[:0]
	for _, id := range ids { // a key that grows keeps the earlier ids valid
		from := len(b.keys)
		b.keys = append(b.keys, id...)
		b.ids = append(b.ids, b.keys[from:])
	}
	n, err := b.fetch()
	if err != nil {
		return 0, err
	}
	ctx := b.request.Context()
	most := 0
	for i, answer := range b.answers.First(n, b.fetched, 0) {
		if err := ctx.Err(); err != nil { // writes to a compressor may not fail
			return 0, err
		}
		var failed error
		if err := budget.Compute(ctx, len(answer.Document), func() { failed = b.appendLine(ctx, ids[i], answer) }); err != nil {
			return 0, err
		}
		if failed != nil {
			return 0, failed
		}
		if held := b.held + cap(b.fetched) + cap(b.plain) + cap(b.line); held > most {
			most = held
			budget.Hold(ctx, most)
		}
		if _, err := b.out.Write(b.line); err != nil {
			return 0, err
		}
	}
	b.fetched, b.plain = nil, nil
	budget.Hold(ctx, b.held+cap(b.line)) // the next window waits for memory
	return n, nil
}

// fetch fetches the first of b.ids, as many as fit, and returns their number.
func (b *batchResponse) fetch() (n int, err error) {
	ctx, cancel := context.WithTimeout(b.request.Context(), httpMemoryWait)
	defer cancel()
	b.fetched, n, err = b.api.router.GetMany(ctx, []byte(b.collection), b.ids, codec.Built(), nil, &b.answers)
	if errors.Is(err, docservice.ErrUnavailable) || errors.Is(err, collection.ErrClosed) {
		b.fetched, n = collection.Deliver(nil, len(b.ids), &b.answers, func(int) (collection.Answer, bool) {
			return collection.Answer{Err: docservice.ErrUnavailable}, true
		})
		err = nil
	}
	return n, err
}

// appendLine makes the line of an answer.
func (b *batchResponse) appendLine(ctx context.Context, id string, answer collection.Answer) (err error) {
	document := answer.Document
	if answer.Err == nil && answer.AsStored {
		if document, err = b.decode(ctx, id, answer.Document); err != nil {
			return err
		}
	}
	switch err := docservice.StatusError(answer.Status(), id); {
	case err == nil:
		b.line = ndjson.AppendFound(b.line[:0], id, document)
	case errors.Is(err, docservice.ErrNotFound):
		b.line = ndjson.AppendNotFound(b.line[:0], id)
	default:
		b.line = ndjson.AppendFailed(b.line[:0], id, docservice.AnswerCode(err), err.Error())
	}
	return nil
}

// decode decodes a stored form. A form that is newer, or whose dictionary is missing, is
// requested again as plain bytes.
func (b *batchResponse) decode(ctx context.Context, id string, form []byte) (_ []byte, err error) {
	parsed, err := stored.Parse(form, []byte(id))
	if err == nil {
		b.plain, err = b.api.decodersOf(b.collection).Decode(ctx, b.plain[:0], parsed)
	}
	if err == nil || errors.Is(err, stored.ErrCorrupt) || ctx.Err() != nil {
		return b.plain, err
	}
	b.plain, _, err = b.api.router.Get(ctx, []byte(b.collection), []byte(id), 0, b.plain[:0])
	return b.plain, err
}
