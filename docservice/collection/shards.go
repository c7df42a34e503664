package collection

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/queue/codec"
	"docstore/queue/shard"
)

// shards are the shards of one collection. A request names the collection, and each id is
// answered by the collection of its shard, or if this service does not have it, with
// STATUS_MOVED, or with STATUS_UNAVAILABLE while it is expected. Only the server's layout
// determines the shard of an id: a client with another layout or an old placement never gets
// "not found" for an id that exists.
type shards struct {
	layout   shard.Layout
	held     []*Collection // by shard; nil: not held
	expected []bool        // by shard
}

// of returns the collection of the shard of an id, or nil.
func (s *shards) of(id []byte) *Collection { return s.held[s.layout.Shard(id)] }

// absent returns the status for the ids of a shard that is not held. It is an answer, not the
// failure of a call: the server works, so pools neither avoid it nor charge their retry
// budget when the client asks another server.
func (s *shards) absent(i int) docservicepb.Status {
	if s.expected[i] {
		return docservicepb.Status_STATUS_UNAVAILABLE
	}
	return docservicepb.Status_STATUS_MOVED
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
		after.divided[collection] = &shards{layout: layout, expected: make([]bool, layout.Shards)}
	})
}

// Expect replaces the set of shards of a divided collection that this service is to serve.
// While it does not have one of them, the ids are unavailable instead of moved: clients ask
// other servers that hold the same shards.
func (s *Service) Expect(collection string, expected []int) {
	s.change(func(after *served) {
		of := after.divided[collection]
		set := make([]bool, of.layout.Shards)
		for _, i := range expected {
			set[i] = true
		}
		after.divided[collection] = &shards{layout: of.layout, expected: set}
	})
}

// Remove stops serving a collection. The caller closes it once the calls that use it have
// ended. A name that is not served is ignored.
func (s *Service) Remove(name string) {
	s.change(func(after *served) { delete(after.byName, name) })
}

// change replaces the set of collections by a changed copy.
func (s *Service) change(edit func(after *served)) {
	s.adding.Lock()
	defer s.adding.Unlock()
	before := s.served.Load()
	after := &served{byName: map[string]*Collection{}, divided: map[string]*shards{}}
	maps.Copy(after.byName, before.byName)
	maps.Copy(after.divided, before.divided)
	edit(after)
	after.list = slices.SortedFunc(maps.Values(after.byName), func(a, b *Collection) int { return strings.Compare(a.Name(), b.Name()) })
	for name, of := range after.divided {
		held := make([]*Collection, of.layout.Shards)
		for i := range held {
			held[i] = after.byName[shard.Name(name, i)]
		}
		after.divided[name] = &shards{layout: of.layout, held: held, expected: of.expected}
	}
	s.served.Store(after)
}

// maxReorderBytes is the maximum size of a buffer for reordering that is kept for the next
// batch.
const maxReorderBytes = 4 << 20

// shardedBatch holds the buffers of a batch over several shards.
type shardedBatch struct {
	order   []uint64 // shard << 32 | index of the id, in the order of the shards
	ids     [][]byte // of one shard
	answers shardAnswers
	spans   []span // by index of the id
	bytes   []byte // the answers in the order of the shards
}

// span is the place of an answer in shardedBatch.bytes. An id without an answer has none.
type span struct{ from, to int }

// shardAnswers is a receiver that records the end of each answer.
type shardAnswers struct {
	batchResponse
	ends []int
}

func (a *shardAnswers) reset() {
	a.batchResponse.reset()
	a.ends = a.ends[:0]
}

func (a *shardAnswers) end(dst []byte, start int, asStored bool, err error) []byte {
	dst = a.batchResponse.end(dst, start, asStored, err)
	a.ends = append(a.ends, len(dst))
	return dst
}

// forget drops the references to memory that the batch does not own.
func (b *shardedBatch) forget() {
	clear(b.ids)
	b.ids = b.ids[:0]
	if cap(b.bytes) > maxReorderBytes {
		b.bytes = nil
	}
}

// batchGetSharded is batchGet of a divided collection: one batch for each shard, then the
// answers in the order of the ids.
func (s *Service) batchGetSharded(ctx context.Context, dst []byte, of *shards, ids [][]byte, accept codec.Set, scratch *batchScratch) ([]byte, error) {
	b := &scratch.sharded
	defer b.forget()
	b.sort(of, ids)
	b.spans = slices.Grow(b.spans[:0], len(ids))[:len(ids)]
	clear(b.spans)
	b.bytes = b.bytes[:0]
	const limit = docservice.MaxReplyBytes - wire.MaxLeftOutBytes
	var useful bool
	var unavailable error
	for order := b.order; len(order) > 0; {
		n := 1
		for n < len(order) && order[n]>>32 == order[0]>>32 {
			n++
		}
		group := order[:n]
		order = order[n:]
		if len(b.bytes) >= limit {
			break
		}
		err := s.answerShard(ctx, of, int(group[0]>>32), ids, group, accept, limit, scratch)
		if err != nil {
			return dst, callError(err)
		}
		useful = useful || b.answers.useful
		if unavailable == nil {
			unavailable = b.answers.unavailable
		}
	}
	return b.assemble(dst, useful, unavailable, limit)
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

// answerShard answers the ids of one shard. Answers that exceed the limit are left out.
func (s *Service) answerShard(ctx context.Context, of *shards, i int, ids [][]byte, group []uint64, accept codec.Set, limit int, scratch *batchScratch) error {
	b := &scratch.sharded
	b.answers.reset()
	start := len(b.bytes)
	c := of.held[i]
	if c == nil {
		b.refuse(group, of.absent(i))
		return nil
	}
	b.ids = b.ids[:0]
	for _, o := range group {
		b.ids = append(b.ids, ids[uint32(o)])
	}
	out, answered, err := c.getMany(ctx, b.bytes, b.ids, accept, limit-start, s.stagesOf(ctx), &scratch.memory, &b.answers)
	if errors.Is(err, ErrClosed) {
		// The shard has moved away during the call.
		b.answers.reset()
		b.refuse(group, docservicepb.Status_STATUS_MOVED)
		return nil
	}
	if err != nil {
		return err
	}
	b.bytes = out
	from := start
	for i, end := range b.answers.ends[:answered] {
		b.spans[uint32(group[i])] = span{from, end}
		from = end
	}
	return nil
}

// refuse answers all ids of a group with a status.
func (b *shardedBatch) refuse(group []uint64, status docservicepb.Status) {
	b.answers.useful = true
	for _, o := range group {
		from := len(b.bytes)
		b.bytes = wire.AppendAnswerStatus(b.bytes, status)
		b.spans[uint32(o)] = span{from, len(b.bytes)}
	}
}

// assemble appends the answers of the first ids, up to the first without an answer.
func (b *shardedBatch) assemble(dst []byte, useful bool, unavailable error, limit int) ([]byte, error) {
	complete, total := 0, 0
	for _, at := range b.spans {
		size := at.to - at.from
		if size == 0 || complete > 0 && total+size > limit {
			break
		}
		complete++
		total += size
	}
	leftOut := len(b.spans) - complete
	if unavailable != nil && !useful && leftOut == 0 {
		return dst, callError(unavailable)
	}
	dst = slices.Grow(dst, total+wire.MaxLeftOutBytes)
	for _, at := range b.spans[:complete] {
		dst = append(dst, b.bytes[at.from:at.to]...)
	}
	if leftOut > 0 {
		dst = wire.AppendLeftOut(dst, leftOut)
	}
	return dst, nil
}
