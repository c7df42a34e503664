package simulate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"docstore/docservice"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
)

// adapterClient asks one server over gRPC and HTTP, the protocols of other languages, on connections
// that it keeps. The settings are those of clients/node.
type adapterClient struct {
	asker
	token     string // if servers require one
	conn      *grpc.ClientConn
	documents docservicegrpc.DocumentsClient
	transport *http.Transport
	tagged    map[string]tagged // by id: the last document with an entity tag
	exporting atomic.Bool       // an export is in progress
}

func (w *world) newAdapterClient(h *serverHost, token string) (*adapterClient, error) {
	c := &adapterClient{token: token, asker: asker{w: w, name: "adapter client of " + h.name, servers: []string{h.name}, single: h}, tagged: map[string]tagged{}}
	var err error
	c.conn, err = grpc.NewClient("passthrough:///"+h.grpc(), append(w.access.grpc(token), grpc.WithContextDialer(dialerOf(w.clients)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: callTime,
		}))...)
	if err != nil {
		return nil, err
	}
	c.documents = docservicegrpc.NewDocumentsClient(c.conn)
	c.transport = &http.Transport{DialContext: c.dial, TLSClientConfig: w.access.clientTLS(), IdleConnTimeout: 30 * time.Second}
	return c, nil
}

// close closes the connections.
func (c *adapterClient) close() error {
	c.transport.CloseIdleConnections()
	return c.conn.Close()
}

// ask sends random requests until ctx ends.
func (c *adapterClient) ask(ctx context.Context) {
	for ctx.Err() == nil {
		d := c.w.chance.Next("ask " + c.name)
		c.one(&d)
		if !ctxtime.Sleep(ctx, d.Duration(100*time.Millisecond, 3*time.Second)) {
			return
		}
	}
}

// one sends one request.
func (c *adapterClient) one(d *chance.Draw) {
	patience := patience(d)
	c.patient = patience == callTime
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ids := c.randomIDs(d)
	switch kind := d.Int(20); {
	case kind < 5:
		c.getGRPC(ctx, ids[0])
	case kind < 8:
		c.batchGRPC(ctx, ids)
	case kind < 10:
		c.pageGRPC(ctx, ids[0])
	case kind < 15:
		c.getHTTP(ctx, ids[0], d)
	case kind < 17:
		c.batchHTTP(ctx, ids)
	case kind < 19:
		c.pageHTTP(ctx, ids[0])
	default:
		if limit, slow := 1+d.Int(500), d.Bool(0.3); c.exporting.CompareAndSwap(false, true) {
			c.w.asking.Go(func() { // other requests compete with it for memory
				defer c.exporting.Store(false)
				c.export(ids[0], limit, slow)
			})
		}
	}
}

// patience returns how long a client waits for a response: some give up while it is sent.
func patience(d *chance.Draw) time.Duration {
	if d.Bool(0.1) {
		return d.Duration(100*time.Microsecond, 10*time.Millisecond)
	}
	return callTime
}

// pending is a request whose answers are not known yet.
type pending struct {
	question
	ready      bool           // the server, which answers itself
	incomplete *serverProcess // as of asker.incomplete
}

// begin records that a request begins. A server of a column passes requests on to other servers.
func (c *adapterClient) begin() pending {
	if c.w.etcd != nil {
		p := pending{question: c.w.account.ask(c.w.names()...)}
		p.whole = c.w.isWhole()
		return p
	}
	p := pending{ready: c.single.observe(), incomplete: c.incomplete()}
	p.question = c.question()
	return p
}

// end judges the answer for an id.
func (c *adapterClient) end(p pending, id string, document []byte, err error) {
	c.judge(p.question, p.ready, p.incomplete, id, document, err)
}

func (c *adapterClient) getGRPC(ctx context.Context, id string) {
	p := c.begin()
	document, err := c.get(ctx, id)
	c.end(p, id, document, err)
}

// asUnavailable makes an error over gRPC match docservice.ErrUnavailable if the server has sent that.
func asUnavailable(err error) error {
	if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), docservice.ErrUnavailable.Error()) {
		return fmt.Errorf("%w: %w", docservice.ErrUnavailable, err)
	}
	return err
}

// get gets a document over gRPC.
func (c *adapterClient) get(ctx context.Context, id string) ([]byte, error) {
	response, err := c.documents.Get(ctx, &docservicepb.GetRequest{Collection: collectionName, Id: []byte(id)})
	if err != nil {
		return nil, asUnavailable(err)
	}
	return response.GetDocument(), docservice.StatusError(response.GetStatus(), id)
}

func (c *adapterClient) batchGRPC(ctx context.Context, ids []string) {
	p := c.begin()
	answers, err := c.batch(ctx, ids)
	if err != nil {
		c.failed(p.question, batchOf(ids), asUnavailable(err))
		return
	}
	for i, answer := range answers {
		c.end(p, ids[i], answer.GetDocument(), docservice.StatusError(answer.GetStatus(), ids[i]))
	}
}

// batch gets the documents of the first ids over gRPC.
func (c *adapterClient) batch(ctx context.Context, ids []string) ([]*docservicepb.BatchGetResponse_Answer, error) {
	request := &docservicepb.BatchGetRequest{Collection: collectionName}
	for _, id := range ids {
		request.Ids = append(request.Ids, []byte(id))
	}
	response, err := c.documents.BatchGet(ctx, request)
	if err != nil {
		return nil, err
	}
	answers := response.GetAnswers()
	if len(answers)+int(response.GetLeftOut()) != len(ids) || len(answers) == 0 {
		c.w.account.wrongf("batch", "%s answered %d and left out %d of %d ids", c.single.name, len(answers), response.GetLeftOut(), len(ids))
		return nil, errors.New("a batch without the right number of answers")
	}
	return answers, nil
}

func (c *adapterClient) pageGRPC(ctx context.Context, after string) {
	p := c.begin()
	page, err := c.documents.Scan(ctx, &docservicepb.ScanRequest{Collection: collectionName, After: []byte(after), Limit: pageIDs})
	if err != nil {
		c.failed(p.question, "a page", asUnavailable(err))
		return
	}
	var ids []string
	for _, entry := range page.GetEntries() {
		id := string(entry.GetId())
		ids = append(ids, id)
		c.end(p, id, entry.GetDocument(), docservice.StatusError(entry.GetStatus(), id))
	}
	c.w.account.listed(p.question, after, string(page.GetNext()), ids)
}

// settle waits until the server answers over gRPC and HTTP for the last record of each shard.
func (c *adapterClient) settle(markers []string, deadline time.Time) {
	for {
		err := c.missing(markers)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.w.account.wrongf("liveness", "%s: %v", c.name, err)
			return
		}
		time.Sleep(settlePoll)
	}
}

// missing returns why the client does not get a marker, nil if it gets all.
func (c *adapterClient) missing(markers []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	p := c.begin()
	for _, id := range markers {
		document, err := c.get(ctx, id)
		if err != nil {
			return fmt.Errorf("%s over gRPC: %w", id, err)
		}
		c.end(p, id, document, nil)
	}
	lines, err := c.postBatch(ctx, markers)
	if err != nil {
		return err
	}
	for i, l := range lines {
		if !l.Found {
			return fmt.Errorf("%s over HTTP: %s", markers[i], l.Code)
		}
	}
	return nil
}
