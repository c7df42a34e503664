package sharded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice"
)

// GetMany fetches many documents and calls fn once for each id, in order, in the calling
// goroutine: with the document, which is valid until fn returns, or with an error as of
// Get. It returns the first error of fn. The failure of a column is the error of its ids.
func (c *Client) GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error {
	b := batches.Get().(*batch)
	defer b.release()
	for from := 0; from < len(ids); {
		n, err := c.getSome(ctx, b, ids, from, fn)
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// errLeftOut is the error of an id for which the response had no room.
var errLeftOut = errors.New("sharded: the response had no room for the document")

// getSome passes the answers for the first ids of ids[from:], and returns their number.
func (c *Client) getSome(ctx context.Context, b *batch, ids []string, from int, fn func(i int, document []byte, err error) error) (int, error) {
	b.begin(ids[from:min(from+docservice.MaxBatchIDs, len(ids))])
	defer b.end()
	s := search{client: c, routes: c.known()}
	if s.routes != nil {
		b.ask(ctx, c, &s, nil)
		for again, why := b.unanswered(); len(again) > 0 && s.next(ctx, why); again, why = b.unanswered() {
			b.ask(ctx, c, &s, again)
		}
	}
	for i := range b.ids {
		document, err := b.places[i].document(ctx)
		switch {
		case err == nil:
		case errors.Is(err, errLeftOut):
			return i, nil // the caller asks again from here
		case !docservice.IsAnswer(err):
			err = fmt.Errorf("%w: %w", docservice.ErrUnavailable, err)
		case moved(err) && s.routes != nil:
			err = s.result(err)
		}
		if err := fn(from+i, document, err); err != nil {
			return 0, err
		}
	}
	return len(b.ids), nil
}

// batch is a GetMany in progress.
type batch struct {
	ids    []string
	places []place // of the answers, by index of the id
	groups []*group
	spare  []*group
}

// place is where the answer of an id is: in the answers of a call.
type place struct {
	group *group // nil: no column is known
	index int
}

// group is a call to one column.
type group struct {
	column  *column
	ids     []string
	answers *docservice.Batch
	err     error // of the whole call
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) release() { batches.Put(b) }

func (b *batch) begin(ids []string) {
	b.ids = ids
	b.places = slices.Grow(b.places[:0], len(ids))[:len(ids)]
}

// end returns the memory of the calls.
func (b *batch) end() {
	for _, g := range b.groups {
		if g.answers != nil {
			g.answers.Release()
		}
		clear(g.ids)
		*g = group{ids: g.ids[:0]}
		b.spare = append(b.spare, g)
	}
	clear(b.groups)
	b.groups, b.ids = b.groups[:0], nil
	clear(b.places)
}

// ask calls the columns of the ids with the given indexes, nil for all, at the same time.
func (b *batch) ask(ctx context.Context, c *Client, s *search, indexes []int) {
	first := len(b.groups)
	if indexes == nil {
		for i := range b.ids {
			b.assign(s, i, first)
		}
	}
	for _, i := range indexes {
		b.assign(s, i, first)
	}
	calls := b.groups[first:]
	if len(calls) == 0 {
		return
	}
	var others sync.WaitGroup
	for _, g := range calls[1:] {
		others.Go(func() { g.call(ctx, c) })
	}
	calls[0].call(ctx, c)
	others.Wait()
}

// assign adds an id to the call of its column. The calls of this round start at first.
func (b *batch) assign(s *search, i, first int) {
	one := s.routes.choose(s.routes.placement.Layout.ShardString(b.ids[i]), s.place)
	if one == nil {
		b.places[i] = place{}
		return
	}
	g := b.groupOf(one, first)
	b.places[i] = place{g, len(g.ids)}
	g.ids = append(g.ids, b.ids[i])
}

// groupOf returns the call to a column in the round that starts at first.
func (b *batch) groupOf(one *column, first int) *group {
	for _, g := range b.groups[first:] {
		if g.column == one {
			return g
		}
	}
	g := new(group)
	if n := len(b.spare); n > 0 {
		g, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	g.column = one
	b.groups = append(b.groups, g)
	return g
}

func (g *group) call(ctx context.Context, c *Client) {
	hedger := &c.shared.hedger
	hedge := hedger.queue(len(g.ids))
	started := time.Now()
	if g.answers, g.err = c.clientOf(g.column).FetchHedgedBatch(ctx, g.ids, hedge); g.err == nil {
		hedger.answered(len(g.ids), time.Since(started))
	}
}

// err returns the error of an id if its document needs no decoding.
func (p place) err() error {
	switch {
	case p.group == nil:
		return ErrNoPlacement
	case p.group.err != nil:
		return p.group.err
	case p.index >= p.group.answers.Len():
		return errLeftOut
	}
	return p.group.answers.Err(p.index)
}

// document returns the document of an id, which is valid until the next call for the same
// column.
func (p place) document(ctx context.Context) ([]byte, error) {
	if err := p.err(); err != nil {
		return nil, err
	}
	return p.group.answers.Document(ctx, p.index)
}

// unanswered returns the indexes of the ids that another server may answer, and the error
// of one of them: a move if there is one, and that a column has no server only if it is the
// error of all.
func (b *batch) unanswered() (indexes []int, why error) {
	for i := range b.places {
		if err := b.places[i].err(); err != nil && elsewhere(err) {
			indexes = append(indexes, i)
			if why == nil || moved(err) || errors.Is(why, boxcarrpc.ErrNoServer) {
				why = err
			}
		}
	}
	return indexes, why
}
