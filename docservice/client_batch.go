package docservice

import (
	"context"

	"docstore/boxcarrpc"
)

// Batch holds the answers of one FetchBatch. It is not safe for concurrent use. Release
// returns its memory; documents are not valid afterwards.
type Batch struct {
	client  *Client
	memory  *clientMemory
	ids     []string
	answers []clientAnswer
}

// FetchBatch fetches the documents of the first ids in one call, plus retries of those that
// a server has not: as many as fit into one response, and at least one; at most
// MaxBatchIDs. GetMany is for most callers; a router that splits a batch needs the answers
// of several calls at a time. An error is that of the whole call; if servers answer, each id
// has an answer or an error.
func (c *Client) FetchBatch(ctx context.Context, ids []string) (*Batch, error) {
	return c.FetchHedgedBatch(ctx, ids, nil)
}

// FetchHedgedBatch is FetchBatch with the hedging of the call, which may be nil. The retries
// are not hedged.
func (c *Client) FetchHedgedBatch(ctx context.Context, ids []string, hedge *boxcarrpc.CallHedge) (*Batch, error) {
	m := getClientMemory()
	m.info.Hedge = hedge
	answers, err := c.getBatch(ctx, m, ids[:min(len(ids), MaxBatchIDs)])
	if err != nil {
		m.release()
		return nil, err
	}
	m.batch = Batch{client: c, memory: m, ids: ids, answers: answers}
	return &m.batch, nil
}

// Len returns the number of answers, which are those of the first ids.
func (b *Batch) Len() int { return len(b.answers) }

// Err returns the error of an id if it needs no decoding: ErrNotFound, ErrUnavailable,
// ErrMoved, ErrBadID, or that the server failed.
func (b *Batch) Err(i int) error { return b.answers[i].err }

// Document returns the document of an id, which is valid until the next call of Document
// or Release, or an error as of Get.
func (b *Batch) Document(ctx context.Context, i int) ([]byte, error) {
	return b.client.documentOf(ctx, b.memory, b.ids[i], b.answers[i])
}

// Release returns the memory of the batch for the next one.
func (b *Batch) Release() {
	m := b.memory
	*b = Batch{} // it is part of the memory
	m.release()
}
