package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/server/internal/httpapi"
	"docstore/internal/ndjson"
	"docstore/internal/units"
	"docstore/queue/stored"
)

// Limits of a batch over HTTP. A batch has at most docservice.MaxBatchIDs ids.
const (
	batchBodyBytes   = 4 << 20 // as of a request over gRPC
	batchWindowIDs   = 256     // documents fetched together
	batchBufferBytes = 32 << 10
)

// documentAPI serves documents. It asks the handler that the other listeners ask, and
// decodes the documents.
type documentAPI struct {
	handler  boxcarrpc.Handler
	decoders *stored.DecoderCache
	log      *slog.Logger
}

// serve answers GET /documents/COLLECTION/ID and POST /documents/COLLECTION. The id is the
// rest of the path, unescaped, slashes included.
func (a *documentAPI) serve(w http.ResponseWriter, r *http.Request) {
	collection, escaped, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), documentsPath), "/")
	client := docservice.NewLocalClient(a.handler, collection, a.decoders)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		id, err := url.PathUnescape(escaped)
		if err != nil {
			httpapi.Errorf(httpapi.CodeInvalidArgument, "the id in the path: %v", err).Write(w)
			return
		}
		serveDocument(w, r, client, id)
	case http.MethodPost:
		if escaped != "" {
			httpapi.NotAllowed(w, r, "GET, HEAD")
			return
		}
		a.serveBatch(w, r, client, collection)
	default:
		allow := "GET, HEAD"
		if escaped == "" {
			allow = "POST"
		}
		httpapi.NotAllowed(w, r, allow)
	}
}

// serveDocument returns a document, or a part of it, under the conditions of the request, as
// RFC 9110, sections 13 and 14, specifies. A part is that of the document without a coding.
// There is no date of a change for the conditions by date.
func serveDocument(w http.ResponseWriter, r *http.Request, client *docservice.Client, id string) {
	ctx, cancel := context.WithTimeout(r.Context(), httpMemoryWait)
	defer cancel()
	coding := httpapi.Negotiate(r.Header.Values("Accept-Encoding"))
	ranges := r.Header.Values("Range")
	if r.Method != http.MethodGet {
		ranges = nil
	}
	if len(ranges) > 0 {
		coding = httpapi.Identity
	}
	content, err := fetchContent(ctx, client, id, coding)
	if err != nil {
		answerError(err).Write(w)
		return
	}
	header := w.Header()
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache") // caches must revalidate: a document can change at any time
	version, ifMatch := versionOf(&content), r.Header.Values("If-Match")
	if len(ifMatch) == 0 && notModified(w, r, version) { // before the document is decoded
		return
	}
	var body transferred
	var failed error
	err = budget.Compute(ctx, content.Bytes(), func() { body, failed = transfer(ctx, client, content, coding) })
	if err == nil {
		err = failed
	}
	if err != nil {
		answerError(err).Write(w)
		return
	}
	budget.Hold(ctx, max(httpRequestBytes, content.Held()+cap(body.bytes)))
	body.send(w, r, version, ranges)
}

// send writes the response, or the error that the conditions of the request demand.
func (t *transferred) send(w http.ResponseWriter, r *http.Request, version string, ranges []string) {
	header, tag := w.Header(), ""
	if version != "" {
		tag = httpapi.ETag(version, t.coding)
	}
	if ifMatch := r.Header.Values("If-Match"); len(ifMatch) > 0 {
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
	if tag != "" {
		header.Set("ETag", tag)
	}
	header.Set("Accept-Ranges", "bytes")
	header.Set("Content-Type", t.contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", fmt.Sprint(len(t.magic)+len(t.bytes)))
	if t.coding != httpapi.Identity {
		header.Set("Content-Encoding", string(t.coding))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, t.magic) // the client may have disconnected
	_, _ = w.Write(t.bytes)           // likewise
}

// notModified answers 304 if If-None-Match has the version, in any coding, and reports whether it
// did.
func notModified(w http.ResponseWriter, r *http.Request, version string) bool {
	tag, ok := httpapi.MatchETag(r.Header.Values("If-None-Match"), version)
	if !ok {
		return false
	}
	if version != "" {
		w.Header().Set("ETag", tag)
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// fetchContent fetches a document and reserves memory for it, its decoded form, and its
// compressed form if there is a coding. While it waits for memory it holds none.
func fetchContent(ctx context.Context, client *docservice.Client, id string, coding httpapi.Coding) (docservice.Content, error) {
	for expected := 0; ; {
		if err := budget.Reserve(ctx, expected); err != nil {
			return docservice.Content{}, err
		}
		content, err := client.Fetch(ctx, id)
		if err != nil {
			return docservice.Content{}, err
		}
		expected = content.Held() + content.Bytes()
		if coding != httpapi.Identity {
			expected += content.Bytes()
		}
		if budget.TryReserve(ctx, expected) {
			return content, nil
		}
		budget.Hold(ctx, httpRequestBytes)
	}
}

// versionOf identifies the version of a document: address and checksum are the same on all
// servers. It is empty if the server did not send them.
func versionOf(c *docservice.Content) string {
	if !c.IsStored() {
		return ""
	}
	at := c.Stored.Address
	return fmt.Sprintf("%d-%d-%d-%08x", at.Segment, at.Block, at.Index, c.Stored.Checksum())
}

// transferred is the body of a response: magic, then bytes.
type transferred struct {
	magic       string
	bytes       []byte
	coding      httpapi.Coding
	contentType string
}

// transfer decodes a document, to learn whether it is JSON, and returns it in the coding. A
// document that is stored as a zstd frame is not compressed again.
func transfer(ctx context.Context, client *docservice.Client, content docservice.Content, coding httpapi.Coding) (transferred, error) {
	document, err := client.Decode(ctx, make([]byte, 0, content.Bytes()), content)
	if err != nil {
		return transferred{}, err
	}
	t := transferred{contentType: "application/octet-stream"}
	if json.Valid(document) {
		t.contentType = "application/json"
	}
	if coding == httpapi.Zstd && content.IsStored() && len(document) <= httpapi.MaxZstdWindowBytes {
		var ok bool
		if t.magic, t.bytes, ok = content.Stored.ZstdFrame(); ok {
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
func (a *documentAPI) serveBatch(w http.ResponseWriter, r *http.Request, client *docservice.Client, collection string) {
	ids, err := readIDs(w, r)
	if err != nil {
		err.Write(w)
		return
	}
	b := batchResponse{client: client, held: httpRequestBytes + batchBufferBytes, request: r}
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
	header.Set("Vary", "Accept-Encoding")
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
		endLines(w, patient, a.log.With("collection", collection), failed)
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
	request *http.Request
	client  *docservice.Client
	out     io.Writer
	held    int // memory besides that of a window
	line    []byte
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
	ctx, cancel := context.WithTimeout(b.request.Context(), httpMemoryWait)
	defer cancel()
	batch, err := b.client.FetchBatch(ctx, ids)
	if err != nil {
		return 0, err
	}
	defer batch.Release()
	most := 0
	for i, id := range ids[:batch.Len()] {
		if err := b.request.Context().Err(); err != nil { // writes to a compressor may not fail
			return 0, err
		}
		var document []byte
		var failed error
		err := budget.Compute(b.request.Context(), len(id), func() {
			if document, failed = batch.Document(b.request.Context(), i); failed == nil {
				b.line = ndjson.AppendFound(b.line[:0], id, document)
			}
		})
		switch {
		case err != nil:
			return 0, err
		case errors.Is(failed, docservice.ErrNotFound):
			b.line = ndjson.AppendNotFound(b.line[:0], id)
		case failed != nil && !docservice.IsAnswer(failed):
			return 0, failed
		case failed != nil:
			b.line = ndjson.AppendFailed(b.line[:0], id, docservice.AnswerCode(failed), failed.Error())
		}
		if held := b.held + batch.Held() + cap(b.line); held > most {
			most = held
			budget.Hold(b.request.Context(), most)
		}
		if _, err := b.out.Write(b.line); err != nil {
			return 0, err
		}
	}
	n := batch.Len()
	budget.Hold(b.request.Context(), b.held+cap(b.line)) // the next window waits for memory
	return n, nil
}
