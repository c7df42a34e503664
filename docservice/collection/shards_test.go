package collection

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/docservice/memcached/memcachedtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// sharded is a collection of several shards in memory.
type sharded struct {
	layout shard.Layout
	shards []*Collection
	docs   map[string]string
}

// newSharded writes n documents into shards and opens a collection for each.
func newSharded(t testing.TB, shards, n, documentBytes int) *sharded {
	return newCachedSharded(t, nil, shards, n, documentBytes)
}

// newCachedSharded gives all shards one cache.
func newCachedSharded(t testing.TB, cache *Cache, shards, n, documentBytes int) *sharded {
	fs := vfs.NewMem()
	d := &sharded{layout: shard.Layout{Shards: shards, Seed: 7}, docs: map[string]string{}}
	w, err := shardset.Open("/queue", &shardset.Options{FS: fs, Layout: d.layout, Codec: "none"})
	require.NoError(t, err)
	for i := range n {
		id := fmt.Sprintf("doc-%d", i)
		d.docs[id] = fmt.Sprintf("%0*d", documentBytes, i)
		require.NoError(t, w.Put(queue.Record{ID: []byte(id), Document: []byte(d.docs[id])}))
	}
	require.NoError(t, w.Close())
	for i := range shards {
		c, err := Open(shard.Name("jobs", i), d.layout.Dir("/queue", i), d.layout.Dir("/data", i), &Options{FS: fs, Cache: cache})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.WaitReady(soon(t)))
		d.shards = append(d.shards, c)
	}
	return d
}

// serve returns a service that holds some of the shards.
func (d *sharded) serve(held ...int) *Service {
	s := NewService()
	s.Divide("jobs", d.layout)
	for _, i := range held {
		s.Add(d.shards[i])
	}
	return s
}

// Whatever shards a server has: an id of another one is answered "moved", and an id of its
// own gets its document or "not found", in the order of the ids.
func TestShardsAnswerInOrder(t *testing.T) {
	d := newSharded(t, 8, 400, 30)
	r := testseed.Rand(t)
	for range 50 {
		held := r.Perm(8)[:r.IntN(9)]
		s := d.serve(held...)
		request := &docservicepb.BatchGetRequest{Collection: "jobs"}
		for range 1 + r.IntN(60) {
			request.Ids = append(request.Ids, fmt.Appendf(nil, "doc-%d", r.IntN(500)))
		}
		var response docservicepb.BatchGetResponse
		require.NoError(t, call(t, s, docservice.MethodBatchGet, request, &response))
		require.Zero(t, response.GetLeftOut())
		require.Len(t, response.GetAnswers(), len(request.GetIds()))
		for i, id := range request.GetIds() {
			want := docservicepb.Status_STATUS_MOVED
			document, exists := d.docs[string(id)]
			switch mine := slices.Contains(held, d.layout.Shard(id)); {
			case mine && exists:
				want = docservicepb.Status_STATUS_FOUND
			case mine:
				want = docservicepb.Status_STATUS_NOT_FOUND
			default:
				document = ""
			}
			require.Equal(t, want, response.GetAnswers()[i].GetStatus(), "%s", id)
			require.Equal(t, document, string(response.GetAnswers()[i].GetDocument()))
			var one docservicepb.GetResponse
			require.NoError(t, call(t, s, docservice.MethodGet, &docservicepb.GetRequest{Collection: "jobs", Id: id}, &one))
			require.Equal(t, want, one.GetStatus())
			require.Equal(t, document, string(one.GetDocument()))
		}
	}
}

// TestShardedBatchReservesMemory: a batch reserves the memory of the documents of all shards, and for
// their copy in the order of the ids. It does not wait for what it has reserved itself while other
// connections of the client hold most of its share.
func TestShardedBatchReservesMemory(t *testing.T) {
	const documents, each, share = 400, 1000, 512 << 10
	d := newSharded(t, 4, documents, each)
	s := d.serve(0, 1, 2, 3)
	b := budget.New(8 * share)
	client := budget.ClientAt(new(net.TCPAddr))
	idle, account := b.Open(client, func() {}), b.Open(client, func() {})
	idle.Charge(share - 64<<10)
	ctx, room := account.NewReservation(t.Context())
	var ids [][]byte
	for id := range d.docs {
		ids = append(ids, []byte(id))
	}
	var list Answers
	result, answered, err := s.GetMany(ctx, []byte("jobs"), ids, codec.Built(), nil, &list)
	require.NoError(t, err)
	for i, a := range list.First(answered, result, 0) {
		require.True(t, strings.HasSuffix(string(a.Document), d.docs[string(ids[i])]), "in its stored form")
	}
	require.Equal(t, documents, answered)
	require.GreaterOrEqual(t, b.Stats().Messages, int64(2*documents*each))
	room.Release()
	require.Zero(t, b.Stats().Messages)
}

// Shards share a cache, although the addresses of their documents are equal.
func TestShardsShareACache(t *testing.T) {
	cache := newCache(t, memcachedtest.Start(t))
	d := newCachedSharded(t, cache, 4, 200, 30)
	waitStats(t, cache, "all are loaded", func(s CacheStats) bool { return s.Loaded == 200 })
	s := d.serve(0, 1, 2, 3)
	request := &docservicepb.BatchGetRequest{Collection: "jobs"}
	for id := range d.docs {
		request.Ids = append(request.Ids, []byte(id))
	}
	var response docservicepb.BatchGetResponse
	require.NoError(t, call(t, s, docservice.MethodBatchGet, request, &response))
	for i, id := range request.GetIds() {
		require.Equal(t, d.docs[string(id)], string(response.GetAnswers()[i].GetDocument()))
	}
	require.EqualValues(t, 200, cache.Stats().Hits)
	require.Zero(t, cache.Stats().Wrong)
}

// A response holds the answers of the first ids, also if those are in the last shard.
func TestShardsLeaveOutTheLastIDs(t *testing.T) {
	const size = 4 << 20
	d := newSharded(t, 4, 16, size)
	s := d.serve(0, 1, 2, 3)
	var ids []string
	for id := range d.docs {
		ids = append(ids, id)
	}
	for len(ids) > 0 {
		request := &docservicepb.BatchGetRequest{Collection: "jobs"}
		for _, id := range ids {
			request.Ids = append(request.Ids, []byte(id))
		}
		body, err := s.Handle(t.Context(), docservice.MethodBatchGet, marshal(t, request), nil)
		require.NoError(t, err)
		require.LessOrEqual(t, len(body), docservice.MaxReplyBytes)
		n := 0
		leftOut, err := wire.DecodeBatchGetResponse(body, func(a wire.Answer) error {
			require.Equal(t, d.docs[ids[n]], string(a.Document))
			n++
			return nil
		})
		require.NoError(t, err)
		require.Positive(t, n)
		require.Equal(t, len(ids), n+int(leftOut))
		ids = ids[n:]
	}
}

func TestShardsComeAndGo(t *testing.T) {
	d := newSharded(t, 2, 20, 10)
	s := d.serve(0, 1)
	client := dial(t, serveHandler(t, s.Handle, nil))
	var ids []string
	for id := range d.docs {
		ids = append(ids, id)
	}
	check := func(held func(shard int) bool) {
		t.Helper()
		require.NoError(t, client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
			one, oneErr := client.Get(soon(t), nil, ids[i])
			if held(d.layout.ShardString(ids[i])) {
				require.NoError(t, errors.Join(err, oneErr))
				require.Equal(t, d.docs[ids[i]], string(document))
				require.Equal(t, d.docs[ids[i]], string(one))
				return nil
			}
			require.ErrorIs(t, err, docservice.ErrMoved)
			require.ErrorIs(t, oneErr, docservice.ErrMoved)
			return nil
		}))
	}
	check(func(int) bool { return true })
	s.Remove(shard.Name("jobs", 1))
	check(func(i int) bool { return i == 0 })
	// A shard that is closed while a call uses it has moved.
	require.NoError(t, d.shards[0].Close())
	check(func(int) bool { return false })
}

// Ids of expected shards are unavailable, so that clients ask another server of the column.
func TestExpectedShards(t *testing.T) {
	d := newSharded(t, 4, 40, 10)
	s := d.serve(0)
	s.Expect("jobs", []int{0, 1})
	byShard := map[int][]byte{}
	for id := range d.docs {
		byShard[d.layout.ShardString(id)] = []byte(id)
	}
	want := map[int]docservicepb.Status{
		0: docservicepb.Status_STATUS_FOUND, 1: docservicepb.Status_STATUS_UNAVAILABLE,
		2: docservicepb.Status_STATUS_MOVED, 3: docservicepb.Status_STATUS_MOVED,
	}
	all := &docservicepb.BatchGetRequest{Collection: "jobs"}
	for i := range 4 {
		all.Ids = append(all.Ids, byShard[i])
		var one docservicepb.GetResponse
		request := &docservicepb.GetRequest{Collection: "jobs", Id: byShard[i]}
		require.NoError(t, call(t, s, docservice.MethodGet, request, &one))
		require.Equal(t, want[i], one.GetStatus())
		var batch docservicepb.BatchGetResponse
		require.NoError(t, call(t, s, docservice.MethodBatchGet, &docservicepb.BatchGetRequest{Collection: "jobs", Ids: [][]byte{byShard[i]}}, &batch))
		require.Len(t, batch.GetAnswers(), 1)
		require.Equal(t, want[i], batch.GetAnswers()[0].GetStatus())
	}
	var response docservicepb.BatchGetResponse
	require.NoError(t, call(t, s, docservice.MethodBatchGet, all, &response))
	for i, a := range response.GetAnswers() {
		require.Equal(t, want[i], a.GetStatus(), i)
	}
	s.Add(d.shards[1])
	var one docservicepb.GetResponse
	require.NoError(t, call(t, s, docservice.MethodGet, &docservicepb.GetRequest{Collection: "jobs", Id: byShard[1]}, &one))
	require.Equal(t, docservicepb.Status_STATUS_FOUND, one.GetStatus())
	s.Expect("jobs", nil)
	s.Remove(shard.Name("jobs", 1))
	require.NoError(t, call(t, s, docservice.MethodGet, &docservicepb.GetRequest{Collection: "jobs", Id: byShard[1]}, &one))
	require.Equal(t, docservicepb.Status_STATUS_MOVED, one.GetStatus())
}

func TestScanOfShardsNamesAShard(t *testing.T) {
	d := newSharded(t, 2, 20, 10)
	s := d.serve(1)
	err := call(t, s, docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs"}, nil)
	requireCode(t, err, boxcarrpc.CodeInvalidArgument)
	require.Contains(t, err.Error(), `"jobs/0"`)
	var page docservicepb.ScanResponse
	require.NoError(t, call(t, s, docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs/1"}, &page))
	n := 0
	for id := range d.docs {
		if d.layout.ShardString(id) == 1 {
			n++
		}
	}
	require.Len(t, page.GetEntries(), n)
	requireCode(t, call(t, s, docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs/0"}, nil), boxcarrpc.CodeNotFound)
}

// A batch over several shards reuses its buffers: it allocates once for each shard, as a
// batch of one collection does.
func TestShardedBatchReusesBuffers(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	d := newSharded(t, 8, 400, 1000)
	s := d.serve(0, 1, 2, 3, 4, 5, 6, 7)
	request := &docservicepb.BatchGetRequest{Collection: "jobs", Accept: uint32(codec.Built())}
	for i := range 50 {
		request.Ids = append(request.Ids, fmt.Appendf(nil, "doc-%d", i*7))
	}
	body := marshal(t, request)
	dst := make([]byte, 0, 1<<20)
	least := math.Inf(1) // other goroutines allocate, too
	for range 5 {
		least = min(least, testing.AllocsPerRun(100, func() {
			_, err := s.Handle(t.Context(), docservice.MethodBatchGet, body, dst)
			require.NoError(t, err)
		}))
	}
	require.LessOrEqual(t, least, 8.0)
}
