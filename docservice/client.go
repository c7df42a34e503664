package docservice

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// maxRetries is how often a client asks another server for ids that were unavailable.
const maxRetries = 3

// Client fetches the documents of one collection from the servers of a pool. Its methods
// are safe for concurrent use.
//
// Documents are transferred in their stored form, and the client decodes them: see
// decode.go. Set PoolOptions.Methods of the pool to IdempotentMethods(), so that a call
// whose server dies is retried on another one.
type Client struct {
	pool       *boxcarrpc.Pool
	collection string
	accept     codec.Set // 0: plain bytes
	decoders   *stored.Decoders
}

// NewClient returns a client. The caller still owns the pool and closes it. Reuse the
// client: it caches the dictionaries.
func NewClient(pool *boxcarrpc.Pool, collection string) *Client {
	c := &Client{pool: pool, collection: collection, accept: codec.Built()}
	c.decoders = stored.NewDecoders(stored.NewDecoderCache(maxDictionaryBytes), c.dictionary)
	return c
}

// Plain returns a client for which the servers decode the documents, for machines with less
// spare CPU time than the servers. Its documents use more network bandwidth and are not
// verified against the checksum of the writer.
func (c *Client) Plain() *Client {
	return &Client{pool: c.pool, collection: c.collection, decoders: c.decoders}
}

// Get appends the document with the id to dst. On any error it returns dst unchanged:
// ErrNotFound; ErrUnavailable if no server that was asked could read it; ErrMoved; ErrBadID;
// ErrNoCollection; ErrMalformed if the response is invalid or holds another document; or
// the error of the call.
func (c *Client) Get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	if !wire.ValidIDBytes(len(id)) {
		return dst, ErrBadID
	}
	if c.accept == 0 {
		return c.getPlain(ctx, dst, id)
	}
	out, err := c.getStored(ctx, dst, id)
	if errors.Is(err, errUndecoded) {
		return c.getPlain(ctx, dst, id)
	}
	return out, err
}

// getPlain is Get of the plain bytes.
func (c *Client) getPlain(ctx context.Context, dst []byte, id string) ([]byte, error) {
	m := getClientMemory()
	defer m.release()
	m.request = wire.AppendID(wire.AppendCollection(m.request[:0], c.collection), id)
	response, a, err := c.callGet(ctx, m.request, dst, &m.info)
	if err != nil {
		return dst, err
	}
	if err := StatusError(a.Status, id); err != nil {
		return dst, err
	}
	if a.Stored != nil {
		return dst, fmt.Errorf("%w: the server sent a stored form, but plain bytes were requested", ErrMalformed)
	}
	// The document is part of the appended bytes: move it to the front.
	return response[:len(dst)+copy(response[len(dst):], a.Document)], nil
}

// callGet appends the response to a Get request to dst and decodes it. If a server answers
// that the document is unavailable, it asks others. On an error it returns dst unchanged.
func (c *Client) callGet(ctx context.Context, request, dst []byte, info *boxcarrpc.CallInfo) ([]byte, wire.Answer, error) {
	for n := 0; ; n++ {
		response, err := c.pool.CallWith(ctx, MethodGet, request, dst, info)
		if err != nil {
			return dst, wire.Answer{}, clientError(err)
		}
		a, err := wire.DecodeAnswer(response[len(dst):])
		if err != nil {
			return dst, wire.Answer{}, err
		}
		if a.Status != docservicepb.Status_STATUS_UNAVAILABLE || n == maxRetries || slices.Contains(info.Avoid, info.Server) {
			return response, a, nil
		}
		info.Avoid = append(info.Avoid, info.Server)
	}
}

// GetMany fetches many documents and calls fn once for each id, in order: with the
// document, which is valid until fn returns, or with an error as of Get. It returns the
// first error of fn, or the error that failed a whole call.
func (c *Client) GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error {
	for from := 0; from < len(ids); {
		n, err := c.getSome(ctx, ids, from, fn)
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// getSome is one batch of GetMany: it fetches the first ids of ids[from:] and returns their
// number.
func (c *Client) getSome(ctx context.Context, ids []string, from int, fn func(i int, document []byte, err error) error) (int, error) {
	b, err := c.FetchBatch(ctx, ids[from:])
	if err != nil {
		return 0, err
	}
	defer b.Release()
	for i := range b.Len() {
		document, err := b.Document(ctx, i)
		if err != nil && !IsAnswer(err) {
			return 0, err
		}
		if err := fn(from+i, document, err); err != nil {
			return 0, err
		}
	}
	return b.Len(), nil
}

// getBatch fetches the documents of the first ids: as many as fit into one response, and at
// least one. It requests the unavailable ids again, from servers that have not answered yet.
func (c *Client) getBatch(ctx context.Context, m *clientMemory, ids []string) ([]clientAnswer, error) {
	answers, err := c.call(ctx, m, ids)
	if errors.Is(err, ErrUnavailable) {
		return slices.Repeat([]clientAnswer{{err: err}}, len(ids)), nil
	}
	if err != nil {
		return nil, err
	}
	last := m
	for range maxRetries {
		var missing []int
		var missingIDs []string
		for i, answer := range answers {
			if errors.Is(answer.err, ErrUnavailable) {
				missing, missingIDs = append(missing, i), append(missingIDs, ids[i])
			}
		}
		asked := last.info
		if len(missing) == 0 || slices.Contains(asked.Avoid, asked.Server) {
			break // all are answered, or all servers have been asked
		}
		last = new(clientMemory)
		last.info.Avoid = append(slices.Clone(asked.Avoid), asked.Server)
		more, err := c.call(ctx, last, missingIDs)
		if errors.Is(err, ErrUnavailable) {
			break // no server has any of them
		}
		if err != nil {
			return nil, err
		}
		for i, answer := range more {
			answers[missing[i]] = answer
		}
		if len(more) < len(missing) {
			// The answers after this one did not fit. The caller requests them again.
			answers = answers[:missing[len(more)]]
		}
	}
	return answers, nil
}

// call is one BatchGet. It answers the first ids, at least one. If all of them are
// unavailable, it fails with ErrUnavailable. The answers are in the memory of m, whose info is
// that of the call.
func (c *Client) call(ctx context.Context, m *clientMemory, ids []string) (_ []clientAnswer, err error) {
	m.request = wire.AppendCollection(m.request[:0], c.collection)
	for _, id := range ids {
		m.request = wire.AppendID(m.request, id)
	}
	m.request = wire.AppendAccept(m.request, c.accept)
	if m.response, err = c.pool.CallWith(ctx, MethodBatchGet, m.request, m.response[:0], &m.info); err != nil {
		return nil, clientError(err)
	}
	answers := m.answers[:0]
	leftOut, err := wire.DecodeBatchGetResponse(m.response, func(a wire.Answer) error {
		if len(answers) == len(ids) {
			return fmt.Errorf("%w: more than %d answers", ErrMalformed, len(ids))
		}
		answers = append(answers, clientAnswer{a, StatusError(a.Status, ids[len(answers)])})
		return nil
	})
	m.answers = answers
	if err != nil {
		return nil, err
	}
	if len(answers) == 0 || uint64(len(answers))+uint64(leftOut) != uint64(len(ids)) {
		return nil, fmt.Errorf("%w: %d answers and %d left out for %d ids", ErrMalformed, len(answers), leftOut, len(ids))
	}
	return answers, nil
}

// Stats returns the description of the collection by one of the servers.
func (c *Client) Stats(ctx context.Context) (*docservicepb.CollectionStats, error) {
	request, err := proto.Marshal(&docservicepb.StatsRequest{Collection: c.collection})
	if err != nil {
		return nil, err
	}
	body, err := c.pool.Call(ctx, MethodStats, request, nil)
	if err != nil {
		return nil, clientError(err)
	}
	var response docservicepb.StatsResponse
	if err := proto.Unmarshal(body, &response); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(response.GetCollections()) != 1 {
		return nil, fmt.Errorf("%w: stats of %d collections, want 1", ErrMalformed, len(response.GetCollections()))
	}
	return response.GetCollections()[0], nil
}

// clientAnswer is an answer with the error for its status.
type clientAnswer struct {
	wire.Answer
	err error
}

// IsAnswer reports whether an error concerns one document and not the call.
func IsAnswer(err error) bool {
	for _, one := range []error{ErrNotFound, ErrUnavailable, ErrMoved, ErrBadID, errAnswerFailed} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// errAnswerFailed is the error for STATUS_ERROR. Only the server's log has the cause.
var errAnswerFailed = errors.New("docservice: the server failed to read the document; see its log")

// StatusError returns the error of an answer with a status to an id, nil for found.
func StatusError(status docservicepb.Status, id string) error {
	switch status {
	case docservicepb.Status_STATUS_FOUND:
		return nil
	case docservicepb.Status_STATUS_NOT_FOUND:
		return ErrNotFound
	case docservicepb.Status_STATUS_UNAVAILABLE:
		return ErrUnavailable
	case docservicepb.Status_STATUS_MOVED:
		return ErrMoved
	case docservicepb.Status_STATUS_ERROR:
		if !wire.ValidIDBytes(len(id)) {
			return ErrBadID
		}
		return errAnswerFailed
	}
	return fmt.Errorf("%w: status %d", ErrMalformed, status)
}

// clientError converts the failure of a call to an error of this package. ErrNoServer stays
// unchanged: it says nothing about a document.
func clientError(err error) error {
	if errors.Is(err, boxcarrpc.ErrNoServer) {
		return err
	}
	switch boxcarrpc.CodeOf(err) {
	case boxcarrpc.CodeUnavailable:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case boxcarrpc.CodeNotFound:
		return fmt.Errorf("%w: %w", ErrNoCollection, err)
	}
	return err
}
