package docservice

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/docservice/docservicepb"
	"docstore/queue"
)

// maxReasks is how often a batch asks again for what was unavailable.
const maxReasks = 3

// Client fetches the documents of one collection from the servers of a pool.
// Its methods may be called from many goroutines at once.
//
// Documents come as they are stored, and the client decodes them: see decode.go.
// The pool's options should have Methods: IdempotentMethods(), so that a call
// whose server dies is repeated on another one.
type Client struct {
	pool       *boxcarrpc.Pool
	collection string
	accept     queue.CodecSet // 0: plain bytes
	decoders   *queue.Decoders
}

// NewClient makes a client. The pool remains its owner's, to be closed by it.
// Keep the client: it holds the dictionaries, which a new one has to fetch.
func NewClient(pool *boxcarrpc.Pool, collection string) *Client {
	c := &Client{pool: pool, collection: collection, accept: queue.BuiltCodecs()}
	c.decoders = queue.NewDecoders(queue.NewDecoderCache(maxDictionaryBytes), c.dictionary)
	return c
}

// Plain returns a client that has the servers decode, for machines that have
// less processor time to spare than they. Its documents take more of the network
// and are not verified by the checksum that the writer gave them.
func (c *Client) Plain() *Client {
	return &Client{pool: c.pool, collection: c.collection, decoders: c.decoders}
}

// Get appends the document with the id to dst. On any error it returns dst
// unchanged: ErrNotFound; ErrUnavailable if none of the servers asked could
// give it; ErrBadID; ErrNoCollection; ErrMalformed if what a server sent is no
// answer or no document of this id; or how the call failed.
func (c *Client) Get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	if !validIDBytes(len(id)) {
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

// getPlain is Get of plain bytes.
func (c *Client) getPlain(ctx context.Context, dst []byte, id string) ([]byte, error) {
	request := make([]byte, 0, len(c.collection)+len(id)+maxRequestOverheadBytes)
	request = appendID(appendCollection(request, c.collection), id)
	response, err := c.pool.Call(ctx, MethodGet, request, dst)
	if err != nil {
		return dst, clientError(err)
	}
	body := response[len(dst):]
	a, err := decodeAnswer(body)
	if err != nil {
		return dst, err
	}
	if err := answerError(a.status, id); err != nil {
		return dst, err
	}
	if a.stored != nil {
		return dst, fmt.Errorf("%w: a stored form where plain bytes were asked for", ErrMalformed)
	}
	// The document is a part of what has been appended: move it to the front.
	return response[:len(dst)+copy(body, a.document)], nil
}

// GetMany fetches many documents and calls fn once for each id, in their order:
// with the document, which is valid until fn returns, or with an error as of
// Get. It returns the first error of fn, or what made a call as a whole fail.
func (c *Client) GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error {
	m := getClientMemory()
	defer m.release()
	for from := 0; from < len(ids); {
		answers, err := c.getBatch(ctx, m, ids[from:min(from+MaxBatchIDs, len(ids))])
		if err != nil {
			return err
		}
		for i, answer := range answers {
			document, err := c.documentOf(ctx, m, ids[from+i], answer)
			if err != nil && !isAnswer(err) {
				return err
			}
			if err := fn(from+i, document, err); err != nil {
				return err
			}
		}
		from += len(answers)
	}
	return nil
}

// getBatch fetches the documents of the first of the ids: one at least, and as
// many as fit into one response. What the server that answers does not have is
// asked for again: if that request meets the same server, it has nothing to
// answer to it, and the pool goes on to the next.
func (c *Client) getBatch(ctx context.Context, m *clientMemory, ids []string) ([]clientAnswer, error) {
	answers, err := c.call(ctx, m, ids)
	if errors.Is(err, ErrUnavailable) {
		return slices.Repeat([]clientAnswer{{err: err}}, len(ids)), nil
	}
	if err != nil {
		return nil, err
	}
	for range maxReasks {
		var missing []int
		var missingIDs []string
		for i, answer := range answers {
			if errors.Is(answer.err, ErrUnavailable) {
				missing, missingIDs = append(missing, i), append(missingIDs, ids[i])
			}
		}
		if len(missing) == 0 {
			break
		}
		more, err := c.call(ctx, new(clientMemory), missingIDs)
		if errors.Is(err, ErrUnavailable) {
			break // nobody has any of them
		}
		if err != nil {
			return nil, err
		}
		for i, answer := range more {
			answers[missing[i]] = answer
		}
		if len(more) < len(missing) {
			// From here on they did not fit any more, and what follows can wait.
			answers = answers[:missing[len(more)]]
		}
	}
	return answers, nil
}

// call is one BatchGet. It answers for the first of the ids, for one at least;
// if every one of them is unavailable, it fails with ErrUnavailable. The answers
// are in the memory of m.
func (c *Client) call(ctx context.Context, m *clientMemory, ids []string) (_ []clientAnswer, err error) {
	m.request = appendCollection(m.request[:0], c.collection)
	for _, id := range ids {
		m.request = appendID(m.request, id)
	}
	m.request = appendAccept(m.request, c.accept)
	if m.response, err = c.pool.Call(ctx, MethodBatchGet, m.request, m.response[:0]); err != nil {
		return nil, clientError(err)
	}
	answers := m.answers[:0]
	leftOut, err := decodeBatchGetResponse(m.response, func(a answer) error {
		if len(answers) == len(ids) {
			return fmt.Errorf("%w: more than %d answers", ErrMalformed, len(ids))
		}
		answers = append(answers, clientAnswer{a, answerError(a.status, ids[len(answers)])})
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

// Stats asks one of the servers for its description of the collection.
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

// clientAnswer is an answer, and the error that its status stands for.
type clientAnswer struct {
	answer
	err error
}

// isAnswer tells whether an error says something about a document, and not about
// the call.
func isAnswer(err error) bool {
	for _, one := range []error{ErrNotFound, ErrUnavailable, ErrBadID, errAnswerFailed} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// errAnswerFailed is STATUS_ERROR: the server knows why.
var errAnswerFailed = errors.New("docservice: the server failed to read the document; its log says why")

// answerError is the error that the status of an id stands for, nil for found.
func answerError(status docservicepb.Status, id string) error {
	switch status {
	case docservicepb.Status_STATUS_FOUND:
		return nil
	case docservicepb.Status_STATUS_NOT_FOUND:
		return ErrNotFound
	case docservicepb.Status_STATUS_UNAVAILABLE:
		return ErrUnavailable
	case docservicepb.Status_STATUS_ERROR:
		if !validIDBytes(len(id)) {
			return ErrBadID
		}
		return errAnswerFailed
	}
	return fmt.Errorf("%w: status %d", ErrMalformed, status)
}

// clientError gives the failure of a call its meaning. That there is no server
// at all stays what it is: that is no answer about a document.
func clientError(err error) error {
	if errors.Is(err, boxcarrpc.ErrNoServer) {
		return err
	}
	switch boxcarrpc.CodeOf(err) {
	case boxcarrpc.CodeUnavailable:
		return unavailable(err)
	case boxcarrpc.CodeNotFound:
		return fmt.Errorf("%w: %w", ErrNoCollection, err)
	}
	return err
}
