package collection

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/queue/codec"
	"docstore/queue/shard"
)

// shards are those of one collection, which may be the only one. A request names the
// collection, and each id is answered by its shard, or if this service does not have it, with
// docservice.ErrMoved, or with docservice.ErrUnavailable while it is expected. Only the
// server's layout determines the shard of an id: a client with another layout or an old
// placement never gets "not found" for an id that exists.
type shards struct {
	layout   shard.Layout
	held     []*Collection // by shard; nil: not held
	expected []bool        // by shard; nil: the collection has one shard, which never moves
}

// absent returns the error for the ids of a shard that is not held.
func (s *shards) absent(i int) error {
	if s.expected[i] {
		return ErrShardAbsent
	}
	return docservice.ErrMoved
}

// hasMoved reports whether err means that a shard has moved away during a call.
func (s *shards) hasMoved(err error) bool { return s.expected != nil && errors.Is(err, ErrClosed) }

// Add adds a collection, or a shard of one. It panics if another one has the same name.
func (s *Service) Add(c *Collection) {
	s.change(func(after *served) {
		if after.byName[c.Name()] != nil {
			panic("docservice: two collections have the name " + c.Name())
		}
		after.hold(c)
	})
}

// Replace serves a collection instead of the one with the same name, or adds it if there
// is none. The caller closes the one that was replaced once the calls that use it have
// ended.
func (s *Service) Replace(c *Collection) {
	s.change(func(after *served) { after.hold(c) })
}

func (s *served) hold(c *Collection) {
	s.byName[c.Name()] = &shards{layout: shard.Layout{Shards: 1}, held: []*Collection{c}}
}

// Divide serves a collection by shards. Shard i is the collection with the name
// shard.Name(collection, i): Add, Replace and Remove change which ones are held. Divide
// panics if a collection has the name, or if the layout is not valid.
func (s *Service) Divide(collection string, layout shard.Layout) {
	if err := layout.Check(); err != nil {
		panic(err)
	}
	s.change(func(after *served) {
		if after.byName[collection] != nil {
			panic("docservice: a collection has the name " + collection)
		}
		after.byName[collection] = &shards{layout: layout, expected: make([]bool, layout.Shards)}
	})
}

// Expect replaces the set of shards of a collection of Divide that this service is to serve.
// While it does not have one of them, the ids are unavailable instead of moved: clients ask
// other servers that hold the same shards.
func (s *Service) Expect(collection string, expected []int) {
	s.change(func(after *served) {
		of := after.byName[collection]
		set := make([]bool, of.layout.Shards)
		for _, i := range expected {
			set[i] = true
		}
		after.byName[collection] = &shards{layout: of.layout, expected: set}
	})
}

// Remove stops serving a collection, or a shard of one. The caller closes it once the calls
// that use it have ended. A name that is not served is ignored.
func (s *Service) Remove(name string) {
	s.change(func(after *served) { delete(after.byName, name) })
}

// change replaces the set of collections by a changed copy.
func (s *Service) change(edit func(after *served)) {
	s.adding.Lock()
	defer s.adding.Unlock()
	after := &served{byName: map[string]*shards{}}
	maps.Copy(after.byName, s.served.Load().byName)
	edit(after)
	for name, of := range after.byName {
		if of.expected == nil {
			after.list = append(after.list, of.held[0])
			continue
		}
		held := make([]*Collection, of.layout.Shards)
		for i := range held {
			if one := after.byName[shard.Name(name, i)]; one != nil {
				held[i] = one.held[0]
			}
		}
		after.byName[name] = &shards{layout: of.layout, held: held, expected: of.expected}
	}
	slices.SortFunc(after.list, func(a, b *Collection) int { return strings.Compare(a.Name(), b.Name()) })
	s.served.Store(after)
}

// maxReorderBytes is the maximum size of a buffer for reordering that is kept for the next
// batch.
const maxReorderBytes = 4 << 20

// shardedBatch holds the buffers of a batch over several shards.
type shardedBatch struct {
	order   []uint64 // shard << 32 | index of the id, in the order of the shards
	ids     [][]byte // of one shard
	answers Answers  // of one shard
	placed  []placed // by index of the id
	bytes   []byte   // the documents in the order of the shards
}

// placed is an answer whose document is in shardedBatch.bytes.
type placed struct {
	answered bool
	from, to int
	asStored bool
	err      error
}

// forget drops the references to memory that the batch does not own.
func (b *shardedBatch) forget() {
	clear(b.ids)
	b.ids = b.ids[:0]
	clear(b.placed)
	b.answers.Reset()
	if cap(b.bytes) > maxReorderBytes {
		b.bytes = nil
	}
}

// getManySharded is GetMany over several shards: one batch for each, then the answers in the
// order of the ids.
func (s *Service) getManySharded(ctx context.Context, dst []byte, of *shards, ids [][]byte, accept codec.Set, scratch *batchScratch, to Receiver) (_ []byte, answered int, err error) {
	if len(ids) > docservice.MaxBatchIDs {
		return dst, 0, docservice.ErrBatchTooLarge
	}
	b := &scratch.sharded
	defer b.forget()
	b.sort(of, ids)
	b.placed = slices.Grow(b.placed[:0], len(ids))[:len(ids)]
	b.bytes = b.bytes[:0]
	for order := b.order; len(order) > 0 && len(b.bytes) < MaxBatchBytes; {
		n := 1
		for n < len(order) && order[n]>>32 == order[0]>>32 {
			n++
		}
		if err := s.answerShard(ctx, of, ids, order[:n], accept, scratch); err != nil {
			return dst, 0, err
		}
		order = order[n:]
	}
	if accept != 0 {
		if err := budget.Reserve(ctx, len(dst)+2*len(b.bytes)); err != nil { // Deliver copies them
			return dst, 0, err
		}
	}
	dst, answered = Deliver(dst, len(ids), to, func(i int) (Answer, bool) {
		p := &b.placed[i]
		return Answer{Document: b.bytes[p.from:p.to], AsStored: p.asStored, Err: p.err}, p.answered
	})
	return dst, answered, nil
}

// Deliver appends answers for the first of n ids to dst with a Receiver: up to the first id
// without an answer, and as many as fit into MaxBatchBytes, but at least one.
func Deliver(dst []byte, n int, to Receiver, answer func(i int) (Answer, bool)) (_ []byte, answered int) {
	to.Reset()
	start := len(dst)
	for answered < n {
		a, ok := answer(answered)
		if !ok {
			break
		}
		at := len(dst)
		dst = to.Begin(dst)
		if a.Err == nil {
			dst = append(dst, a.Document...)
		}
		dst = to.End(dst, at, a.AsStored, a.Err)
		if answered > 0 && len(dst)-start > MaxBatchBytes {
			return dst[:at], answered
		}
		answered++
	}
	return dst, answered
}

// sort orders the ids by shard. The shard of the first id is the first one, so that the
// limit of the response never leaves out the first id.
func (b *shardedBatch) sort(of *shards, ids [][]byte) {
	b.order = b.order[:0]
	if len(ids) == 0 {
		return
	}
	for i, id := range ids {
		b.order = append(b.order, uint64(of.layout.Shard(id))<<32|uint64(i))
	}
	first := b.order[0]
	slices.Sort(b.order)
	at, _ := slices.BinarySearch(b.order, first)
	rotate(b.order, at)
}

// rotate moves the element at n to the front, and those before it to the end.
func rotate(s []uint64, n int) {
	slices.Reverse(s[:n])
	slices.Reverse(s[n:])
	slices.Reverse(s)
}

// answerShard answers a group of ids, those of one shard. Answers that exceed the limit are
// left out.
func (s *Service) answerShard(ctx context.Context, of *shards, ids [][]byte, group []uint64, accept codec.Set, scratch *batchScratch) error {
	b := &scratch.sharded
	i := int(group[0] >> 32)
	c := of.held[i]
	if c == nil {
		b.refuse(group, of.absent(i))
		return nil
	}
	b.ids = b.ids[:0]
	for _, o := range group {
		b.ids = append(b.ids, ids[uint32(o)])
	}
	from := len(b.bytes)
	out, answered, err := c.getMany(ctx, b.bytes, b.ids, accept, MaxBatchBytes-from, s.stagesOf(ctx), &scratch.memory, &b.answers)
	if err != nil && of.hasMoved(err) {
		b.refuse(group, docservice.ErrMoved)
		return nil
	}
	if err != nil {
		return err
	}
	b.bytes = out
	for n, a := range b.answers.list[:answered] {
		to := b.answers.ends[n]
		b.placed[uint32(group[n])] = placed{true, from, to, a.AsStored, a.Err}
		from = to
	}
	return nil
}

// refuse answers all ids of a group with an error.
func (b *shardedBatch) refuse(group []uint64, err error) {
	for _, o := range group {
		b.placed[uint32(o)] = placed{answered: true, err: err}
	}
}
