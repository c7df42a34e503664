package sharded

import (
	"context"
	"fmt"
	"sync"

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

// getSome passes the answers for the first ids of ids[from:], and returns their number.
func (c *Client) getSome(ctx context.Context, b *batch, ids []string, from int, fn func(i int, document []byte, err error) error) (int, error) {
	b.begin(ids[from:min(from+docservice.MaxBatchIDs, len(ids))])
	defer b.end()
	s := search{client: c, routes: c.shared.routes.Load()}
	b.ask(ctx, c, &s, nil)
	for again, why := b.unanswered(); len(again) > 0 && s.routes != nil && s.next(ctx, why); again, why = b.unanswered() {
		b.ask(ctx, c, &s, again)
	}
	for i := range b.ids {
		at := b.places[i]
		if at.leftOut {
			return i, nil // the caller asks again from here
		}
		document, err := b.document(ctx, at)
		if err != nil && !docservice.IsAnswer(err) {
			err = fmt.Errorf("%w: %w", docservice.ErrUnavailable, err)
		}
		if moved(err) && s.routes != nil {
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
	places []place
	groups []*group
	spare  []*group
}

// place is where the answer of an id is.
type place struct {
	group   *group
	index   int  // in the group
	leftOut bool // the response had no room
	err     error
}

// group is a call to one column.
type group struct {
	column  *column
	ids     []string
	from    []int // the index of each id in the batch
	answers *docservice.Batch
	err     error // of the whole call
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) release() { batches.Put(b) }

func (b *batch) begin(ids []string) {
	b.ids = ids
	b.places = append(b.places[:0], make([]place, len(ids))...)
}

// end returns the memory of the calls.
func (b *batch) end() {
	for _, g := range b.groups {
		if g.answers != nil {
			g.answers.Release()
		}
		clear(g.ids)
		*g = group{ids: g.ids[:0], from: g.from[:0]}
		b.spare = append(b.spare, g)
	}
	clear(b.groups)
	b.groups, b.ids = b.groups[:0], nil
	clear(b.places)
}

// ask calls the columns of the ids with the given indexes, nil for all, at the same time.
func (b *batch) ask(ctx context.Context, c *Client, s *search, indexes []int) {
	first := len(b.groups)
	if s.routes == nil {
		for i := range b.places {
			b.places[i].err = ErrNoPlacement
		}
		return
	}
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
	for _, g := range calls {
		for n, i := range g.from {
			b.places[i] = g.place(n)
		}
	}
}

// assign adds an id to the call of its column. The calls of this round start at first.
func (b *batch) assign(s *search, i, first int) {
	one := s.routes.choose(s.routes.placement.Layout.ShardString(b.ids[i]), s.place)
	if one == nil {
		b.places[i] = place{err: ErrNoPlacement}
		return
	}
	var g *group
	for _, other := range b.groups[first:] {
		if other.column == one {
			g = other
			break
		}
	}
	if g == nil {
		if n := len(b.spare); n > 0 {
			g, b.spare = b.spare[n-1], b.spare[:n-1]
		} else {
			g = new(group)
		}
		g.column = one
		b.groups = append(b.groups, g)
	}
	g.ids, g.from = append(g.ids, b.ids[i]), append(g.from, i)
}

func (g *group) call(ctx context.Context, c *Client) {
	g.answers, g.err = c.clientOf(g.column).FetchBatch(ctx, g.ids)
}

// place returns the place of the answer for the n-th id.
func (g *group) place(n int) place {
	switch {
	case g.err != nil:
		return place{err: g.err}
	case n >= g.answers.Len():
		return place{leftOut: true}
	}
	return place{group: g, index: n, err: g.answers.Err(n)}
}

// unanswered returns the indexes of the ids that another server may answer, and the error
// of one of them, a move if there is one.
func (b *batch) unanswered() (indexes []int, why error) {
	for i := range b.places {
		if err := b.places[i].err; err != nil && elsewhere(err) {
			indexes = append(indexes, i)
			if why == nil || moved(err) {
				why = err
			}
		}
	}
	return indexes, why
}

// document returns the document of a place.
func (b *batch) document(ctx context.Context, at place) ([]byte, error) {
	if at.group == nil {
		return nil, at.err
	}
	return at.group.answers.Document(ctx, at.index)
}
