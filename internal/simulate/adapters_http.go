package simulate

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	"docstore/docservice"
	"docstore/internal/ctxtime"
)

const (
	// exportTime bounds an export, which a client may read slowly.
	exportTime = time.Minute
	// slowRead is the pause of a slow reader before each slowReadBytes.
	slowRead      = 50 * time.Millisecond
	slowReadBytes = 8 << 10
	// onTheWay is more than the bytes of a response that its handler has written, and that have not
	// been read: those in the buffers of server, network and client.
	onTheWay = 512 << 10
)

// agedConn is a connection with the time at which it was opened.
type agedConn struct {
	net.Conn
	opened time.Time
}

func (c *adapterClient) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.w.clients.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &agedConn{Conn: conn, opened: time.Now()}, nil
}

// send sends a request over HTTP. A server asks the client to close a connection that has reached its
// maximum age.
func (c *adapterClient) send(ctx context.Context, method, path string, header http.Header, body string) (*http.Response, error) {
	var age time.Duration
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn
		if encrypted, ok := conn.(*tls.Conn); ok {
			conn = encrypted.NetConn()
		}
		if conn, ok := conn.(*agedConn); ok {
			age = time.Since(conn.opened)
		}
	}})
	request, err := http.NewRequestWithContext(ctx, method, c.w.access.scheme()+c.single.http()+path, strings.NewReader(body))
	c.w.must(err)
	maps.Copy(request.Header, header)
	c.w.access.authorize(request, c.token)
	request.Host = header.Get("Host") // empty: the address
	response, err := c.transport.RoundTrip(request)
	if err == nil && age > connAge*5/4 && !response.Close {
		c.w.account.wrongf("connection age", "%s keeps a connection over HTTP that is %v old", c.single.name, age)
	}
	return response, err
}

// line is a line of a batch or an export over HTTP, or a page of ids.
type line struct {
	ID       string          `json:"id"`
	Found    bool            `json:"found"`
	Document json.RawMessage `json:"document"`
	Code     string          `json:"code"`
	IDs      []string        `json:"ids"`
	Next     string          `json:"next"`
}

// err returns the error for the id of a line.
func (l *line) err() error {
	switch {
	case l.Found:
		return nil
	case l.Code == "":
		return docservice.ErrNotFound
	case l.Code == docservice.AnswerCode(docservice.ErrUnavailable):
		return docservice.ErrUnavailable
	}
	return errors.New(l.Code)
}

// lines sends a request and reads the lines of the response. Those of an error and of a part of a
// response are not returned.
func (c *adapterClient) lines(ctx context.Context, method, path, body string, slow bool) (lines []line, err error) {
	response, err := c.send(ctx, method, path, nil, body)
	if err != nil {
		return nil, err
	}
	reader := &responseReader{ctx: ctx, from: response.Body, slow: slow, server: c.single, idleAt: -1}
	text, err := io.ReadAll(reader)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, statusError(response.StatusCode)
	}
	if reader.idleAt >= 0 && !response.Uncompressed && len(text)-reader.idleAt > onTheWay {
		c.w.account.wrongf("admission", "%s had no request in flight, while it wrote a response of %d bytes, of which %d were read", c.single.name, len(text), reader.idleAt)
	}
	for one := range strings.Lines(string(text)) {
		var l line
		if err := json.Unmarshal([]byte(one), &l); err != nil {
			c.w.account.wrongf("bytes", "%s %s of %s has a line that is not JSON: %v", method, path, c.single.name, err)
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// responseReader reads a response, if slow a part at a time after a pause. It notes when the server
// has no request in flight.
type responseReader struct {
	ctx    context.Context //nolint:containedctx // of the request
	from   io.Reader
	slow   bool
	server *serverHost
	read   int // bytes
	idleAt int // read when the server was first idle; -1: never
}

func (r *responseReader) Read(b []byte) (int, error) {
	if s := r.server.started(); r.idleAt < 0 && s != nil && s.Boxcar().Stats().InFlight == 0 {
		r.idleAt = r.read
	}
	if r.slow {
		if !ctxtime.Sleep(r.ctx, slowRead) {
			return 0, r.ctx.Err()
		}
		b = b[:min(len(b), slowReadBytes)]
	}
	n, err := r.from.Read(b)
	r.read += n
	return n, err
}

// postBatch gets documents. There is a line for each id if it succeeds.
func (c *adapterClient) postBatch(ctx context.Context, ids []string) (lines []line, err error) {
	body, err := json.Marshal(ids)
	c.w.must(err)
	if lines, err = c.lines(ctx, http.MethodPost, "/documents/"+collectionName, string(body), false); err != nil {
		return nil, err
	}
	if !slices.EqualFunc(lines, ids, func(l line, id string) bool { return l.ID == id }) {
		c.w.account.wrongf("batch", "%s answered %v for the ids %v over HTTP", c.single.name, lines, ids)
		return nil, errors.New("a batch with other ids")
	}
	return lines, nil
}

func (c *adapterClient) batchHTTP(ctx context.Context, ids []string) {
	p := c.begin()
	lines, err := c.postBatch(ctx, ids)
	if err != nil {
		c.failed(p.question, batchOf(ids), err)
	}
	for _, l := range lines {
		c.end(p, l.ID, l.Document, l.err())
	}
}

func (c *adapterClient) pageHTTP(ctx context.Context, after string) {
	p := c.begin()
	query := url.Values{"after": {after}, "limit": {itoa(pageIDs)}}
	lines, err := c.lines(ctx, http.MethodGet, "/collections/"+collectionName+"/ids?"+query.Encode(), "", false)
	if err != nil {
		c.failed(p.question, "a page", err)
		return
	}
	if len(lines) != 1 {
		c.w.account.wrongf("list", "%s answered %d lines for a page of ids", c.single.name, len(lines))
		return
	}
	next, err := url.Parse(lines[0].Next)
	c.w.must(err)
	c.w.account.listed(p.question, after, next.Query().Get("after"), lines[0].IDs)
}

const exportPath = "/collections/" + collectionName + "/export"

// export reads the documents of one moment, up to limit.
func (c *adapterClient) export(after string, limit int, slow bool) {
	ctx, cancel := context.WithTimeout(context.Background(), exportTime)
	defer cancel()
	p := c.begin()
	query := url.Values{"after": {after}, "limit": {itoa(limit)}}
	lines, err := c.lines(ctx, http.MethodGet, exportPath+"?"+query.Encode(), "", slow)
	if err != nil {
		c.w.account.other("error")
		return
	}
	var ids []string
	for _, l := range lines {
		ids = append(ids, l.ID)
		c.end(p, l.ID, l.Document, l.err())
	}
	through := ""
	if len(ids) == limit {
		through = ids[limit-1]
	}
	c.w.account.listed(p.question, after, through, ids)
}
