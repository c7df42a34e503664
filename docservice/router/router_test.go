package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/docservicepb"
	"docstore/docservice/placement"
	"docstore/docservice/sharded"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/shard"
	"docstore/queue/stored"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// fleet is a collection of shards with servers in three columns of one row. Shard i is on
// column i mod 3.
type fleet struct {
	t         *testing.T
	layout    shard.Layout
	documents map[string]string
	shards    []*collection.Collection
	services  []*collection.Service
	servers   []*boxcarrpc.Server
	addresses []string
	source    placement.Current
	router    *Router // of the first server
}

const shards = 8

func newFleet(t *testing.T, documentBytes int) *fleet {
	f := &fleet{t: t, layout: shard.Layout{Shards: shards, Seed: 3}, documents: map[string]string{}}
	fs := vfs.NewMem()
	var writers []*queue.Writer
	for i := range shards {
		w, err := queue.OpenWriter(f.layout.Dir("/queue", i), &queue.WriterOptions{FS: fs})
		require.NoError(t, err)
		writers = append(writers, w)
	}
	for i := range 60 {
		id := fmt.Sprintf("doc-%03d", i)
		f.documents[id] = fmt.Sprintf("%0*d", documentBytes, i)
		_, err := writers[f.layout.ShardString(id)].Append([]byte(id), []byte(f.documents[id]))
		require.NoError(t, err)
	}
	for i, w := range writers {
		require.NoError(t, w.Close())
		c, err := collection.Open(shard.Name("jobs", i), f.layout.Dir("/queue", i), f.layout.Dir("/data", i), &collection.Options{FS: fs})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		require.NoError(t, c.WaitReady(soon(t)))
		f.shards = append(f.shards, c)
	}
	m := &placement.Map{Collection: "jobs", Epoch: 1, Layout: f.layout, Shards: make([]placement.Place, shards)}
	for i := range 3 {
		f.start(i)
	}
	for i := range m.Shards {
		m.Shards[i].Column = fmt.Sprint(i % 3)
		f.services[i%3].Add(f.shards[i])
	}
	f.source.Set(m)
	f.router = New(f.services[0])
	f.router.Add("jobs", f.client(nil))
	return f
}

// client returns a client of the fleet. Columns may have servers besides the one of their
// number.
func (f *fleet) client(rows map[string][]string) *sharded.Client {
	client, err := sharded.NewClient(&f.source, "jobs", &sharded.Options{Pool: func(column string) (*boxcarrpc.Pool, error) {
		i, err := strconv.Atoi(column)
		if err != nil {
			return nil, err
		}
		return boxcarrpc.NewPool(discovery.Static(append(rows[column], f.addresses[i])...), &boxcarrpc.PoolOptions{Methods: docservice.IdempotentMethods(), Size: 4})
	}})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { assert.NoError(f.t, client.Close()) })
	require.NoError(f.t, client.WaitReady(soon(f.t)))
	return client
}

func (f *fleet) start(i int) {
	s := collection.NewService()
	s.Divide("jobs", f.layout)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f.t, err)
	server := boxcarrpc.NewServer(s.Handle, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	f.t.Cleanup(func() {
		assert.NoError(f.t, server.Close())
		<-served
	})
	f.services, f.servers, f.addresses = append(f.services, s), append(f.servers, server), append(f.addresses, listener.Addr().String())
	require.Len(f.t, f.services, i+1)
}

func (f *fleet) call(method string, request, response proto.Message) error {
	f.t.Helper()
	body, err := proto.Marshal(request)
	require.NoError(f.t, err)
	out, err := f.router.Handle(soon(f.t), method, body, []byte("before"))
	require.Equal(f.t, "before", string(out[:6]))
	if err != nil {
		require.Len(f.t, out, 6, "dst is unchanged on error")
		return err
	}
	require.NoError(f.t, proto.Unmarshal(out[6:], response))
	return nil
}

// localClient asks the router of a fleet for documents, as a listener in this process does.
type localClient struct {
	f        *fleet
	decoders *stored.Decoders
}

func (f *fleet) local() *localClient {
	return &localClient{f, stored.NewDecoders(stored.NewDecoderCache(1<<20), func(ctx context.Context, hash codec.DictionaryHash) ([]byte, error) {
		return f.router.Dictionary(ctx, []byte("jobs"), hash)
	})}
}

// decode returns a document that was requested in its stored form.
func (l *localClient) decode(id string, document []byte, asStored bool) []byte {
	require.True(l.f.t, asStored)
	form, err := stored.Parse(document, []byte(id))
	require.NoError(l.f.t, err)
	document, err = l.decoders.Decode(soon(l.f.t), nil, form)
	require.NoError(l.f.t, err)
	return document
}

func (l *localClient) get(id string) ([]byte, error) {
	out, asStored, err := l.f.router.Get(soon(l.f.t), []byte("jobs"), []byte(id), codec.Built(), []byte("before"))
	require.Equal(l.f.t, "before", string(out[:6]))
	if err != nil {
		require.Len(l.f.t, out, 6, "dst is unchanged on error")
		return nil, err
	}
	return l.decode(id, out[6:], asStored), nil
}

// getMany calls fn in the order of the ids. With plain the servers decode the documents.
func (l *localClient) getMany(ids []string, plain bool, fn func(id string, document []byte, err error)) {
	accept := codec.Built()
	if plain {
		accept = 0
	}
	for len(ids) > 0 {
		var keys [][]byte
		for _, id := range ids {
			keys = append(keys, []byte(id))
		}
		var list collection.Answers
		out, n, err := l.f.router.GetMany(soon(l.f.t), []byte("jobs"), keys, accept, nil, &list)
		require.NoError(l.f.t, err)
		require.Positive(l.f.t, n)
		for i, a := range list.First(n, out, 0) {
			if a.Err == nil && !plain {
				a.Document = l.decode(ids[i], a.Document, a.AsStored)
			}
			fn(ids[i], a.Document, a.Err)
		}
		ids = ids[n:]
	}
}

// Any server answers for all shards: documents, in the stored form that a client accepts, and
// "not found".
func TestAnyServerAnswers(t *testing.T) {
	f := newFleet(t, 30)
	local := f.local()
	var ids []string
	for id, want := range f.documents {
		ids = append(ids, id, "none-"+id)
		document, err := local.get(id)
		require.NoError(t, err)
		require.Equal(t, want, string(document))
	}
	_, err := local.get("none")
	require.ErrorIs(t, err, docservice.ErrNotFound)
	r := testseed.Rand(t)
	for range 50 {
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		local.getMany(ids[:1+r.IntN(len(ids))], r.IntN(2) == 0, func(id string, document []byte, err error) {
			if want, exists := f.documents[id]; exists {
				require.NoError(t, err)
				require.Equal(t, want, string(document))
				return
			}
			require.ErrorIs(t, err, docservice.ErrNotFound)
		})
	}
	require.Positive(t, f.router.Forwards().Forwarded)
}

// While a row of a column lacks its shards, each request for them is passed on to another row.
func TestRowLacksShards(t *testing.T) {
	f := newFleet(t, 30)
	rows := map[string][]string{}
	for i := 3; i < 5; i++ {
		f.start(i)
		f.services[i].Expect("jobs", []int{1, 4, 7})
		rows["1"] = append(rows["1"], f.addresses[i])
	}
	client := f.client(rows)
	f.router.Add("jobs", client)
	local := f.local()
	for range 20 {
		for id, want := range f.documents {
			document, err := local.get(id)
			require.NoError(t, err)
			require.Equal(t, want, string(document))
			local.getMany([]string{id}, false, func(_ string, document []byte, err error) {
				require.NoError(t, err)
				require.Equal(t, want, string(document))
			})
		}
	}
	for _, s := range client.PoolStats() {
		require.Zero(t, s.Retries)
	}
}

// A batch that does not fit leaves out the last ids.
func TestLargeBatch(t *testing.T) {
	f := newFleet(t, 1<<20)
	local := f.local()
	var ids []string
	for id := range f.documents {
		ids = append(ids, id)
	}
	n := 0
	local.getMany(ids, true, func(id string, document []byte, err error) {
		require.NoError(t, err)
		require.Equal(t, f.documents[id], string(document))
		n++
	})
	require.Equal(t, len(ids), n)
}

// A request is passed on once: if the placement is wrong, the servers answer MOVED, and the
// client of the router gets "unavailable", never "not found".
func TestWrongPlacement(t *testing.T) {
	f := newFleet(t, 30)
	m, _ := f.source.Map()
	wrong := *m
	wrong.Epoch++
	wrong.Shards = make([]placement.Place, shards)
	for i := range wrong.Shards {
		wrong.Shards[i].Column = fmt.Sprint((i + 1) % 3)
	}
	f.source.Set(&wrong)
	for id := range f.documents {
		i := f.layout.ShardString(id)
		if i%3 == 0 {
			continue // the router's own
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		request, err := proto.Marshal(&docservicepb.GetRequest{Collection: "jobs", Id: []byte(id)})
		require.NoError(t, err)
		_, err = f.router.Handle(ctx, docservice.MethodGet, request, nil)
		require.Error(t, err)
		require.Contains(t, []boxcarrpc.Code{boxcarrpc.CodeUnavailable, boxcarrpc.CodeDeadlineExceeded}, boxcarrpc.CodeOf(err))
		break
	}
	f.source.Set(m)
}

// A server that has started while etcd is away, and serves no shard yet, said that its collection does
// not exist, which is 404 over HTTP.
func TestWithoutPlacement(t *testing.T) {
	client, err := sharded.NewClient(&placement.Current{}, "jobs", &sharded.Options{Pool: func(string) (*boxcarrpc.Pool, error) {
		return nil, errors.New("no column is known")
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	r := New(collection.NewService())
	r.Add("jobs", client)
	for name, want := range map[string]error{"jobs": docservice.ErrUnavailable, "others": docservice.ErrNoCollection} {
		_, _, err = r.Get(soon(t), []byte(name), []byte("doc"), codec.Set(0), nil)
		require.ErrorIs(t, err, want, name)
		_, _, err = r.GetMany(soon(t), []byte(name), [][]byte{[]byte("doc")}, codec.Set(0), nil, &collection.Answers{})
		require.ErrorIs(t, err, want, name)
	}
}

// A dead column makes its own ids unavailable, and no others.
func TestDeadColumn(t *testing.T) {
	f := newFleet(t, 30)
	require.NoError(t, f.servers[2].Close())
	f.router.timeout = 300 * time.Millisecond
	request := &docservicepb.BatchGetRequest{Collection: "jobs"}
	for id := range f.documents {
		request.Ids = append(request.Ids, []byte(id))
	}
	var response docservicepb.BatchGetResponse
	require.NoError(t, f.call(docservice.MethodBatchGet, request, &response))
	for i, a := range response.GetAnswers() {
		want := docservicepb.Status_STATUS_FOUND
		if f.layout.Shard(request.GetIds()[i])%3 == 2 {
			want = docservicepb.Status_STATUS_UNAVAILABLE
		}
		require.Equal(t, want, a.GetStatus())
	}
	for _, id := range request.GetIds() {
		if f.layout.Shard(id)%3 == 2 {
			err := f.call(docservice.MethodGet, &docservicepb.GetRequest{Collection: "jobs", Id: id}, nil)
			require.Equal(t, boxcarrpc.CodeUnavailable, boxcarrpc.CodeOf(err))
			break
		}
	}
}

func TestLists(t *testing.T) {
	f := newFleet(t, 30)
	var ids []string
	for after := []byte(nil); ; {
		var page docservicepb.ScanResponse
		require.NoError(t, f.call(docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs", Limit: 7, After: after}, &page))
		for _, e := range page.GetEntries() {
			ids = append(ids, string(e.GetId()))
			require.Equal(t, f.documents[string(e.GetId())], string(e.GetDocument()))
		}
		if after = page.GetNext(); len(after) == 0 {
			break
		}
	}
	require.Len(t, ids, 60)
	require.IsIncreasing(t, ids)
	c := f.router.Collection("jobs")
	require.Equal(t, "jobs", c.Name())
	n, err := c.Count(soon(t), []byte("doc-00"))
	require.NoError(t, err)
	require.EqualValues(t, 10, n)
	enough := errors.New("enough")
	require.ErrorIs(t, c.Scan(soon(t), docservice.ScanOptions{}, func([]byte, collection.Answer) error { return enough }), enough)
	n = 0
	require.NoError(t, c.Scan(soon(t), docservice.ScanOptions{Limit: 25}, func([]byte, collection.Answer) error { n++; return nil }))
	require.EqualValues(t, 25, n)
	var stats docservicepb.StatsResponse
	require.NoError(t, f.call(docservice.MethodStats, &docservicepb.StatsRequest{Collection: "jobs"}, &stats))
	require.EqualValues(t, 60, stats.GetCollections()[0].GetSegmentDocuments())
	err = f.call(docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs", Limit: docservice.MaxScanIDs + 1}, nil)
	require.Equal(t, boxcarrpc.CodeInvalidArgument, boxcarrpc.CodeOf(err))
	require.Equal(t, boxcarrpc.CodeNotFound, boxcarrpc.CodeOf(f.call(docservice.MethodScan, &docservicepb.ScanRequest{Collection: "other"}, nil)))
}

// Above the limit requests are refused; those that this server can answer are not.
func TestLimit(t *testing.T) {
	f := newFleet(t, 30)
	for range MaxForwards {
		f.router.slots <- struct{}{}
	}
	answered, refused := 0, 0
	for id := range f.documents {
		var response docservicepb.GetResponse
		err := f.call(docservice.MethodGet, &docservicepb.GetRequest{Collection: "jobs", Id: []byte(id)}, &response)
		if f.layout.ShardString(id)%3 == 0 {
			require.NoError(t, err)
			answered++
			continue
		}
		require.Equal(t, boxcarrpc.CodeResourceExhausted, boxcarrpc.CodeOf(err))
		refused++
	}
	require.Positive(t, answered)
	require.EqualValues(t, refused, f.router.Forwards().Refused)
}

// Batch requests leave a quarter of the limit to others.
func TestBatchIsPassedOnBelowTheReserve(t *testing.T) {
	f := newFleet(t, 30)
	for range MaxForwards - MaxForwards/4 {
		f.router.slots <- struct{}{}
	}
	scan, err := proto.Marshal(&docservicepb.ScanRequest{Collection: "jobs"})
	require.NoError(t, err)
	ask := func(ctx context.Context) boxcarrpc.Code {
		_, err := f.router.Handle(ctx, docservice.MethodScan, scan, nil)
		return boxcarrpc.CodeOf(err)
	}
	require.Equal(t, boxcarrpc.CodeResourceExhausted, ask(boxcarrpc.WithBatch(soon(t))))
	require.Equal(t, boxcarrpc.CodeOK, ask(soon(t)))
	<-f.router.slots
	require.Equal(t, boxcarrpc.CodeOK, ask(boxcarrpc.WithBatch(soon(t))))
	require.EqualValues(t, 1, f.router.Forwards().Refused)
}

// A client without permission gets no answer, whichever server has the shard.
func TestPermissions(t *testing.T) {
	f := newFleet(t, 30)
	f.services[0].Authorize(func(context.Context, string) error { return errors.New("not permitted") })
	ids := &docservicepb.BatchGetRequest{Collection: "jobs"}
	for id := range f.documents {
		ids.Ids = append(ids.Ids, []byte(id))
		err := f.call(docservice.MethodGet, &docservicepb.GetRequest{Collection: "jobs", Id: []byte(id)}, nil)
		require.Equal(t, boxcarrpc.CodePermissionDenied, boxcarrpc.CodeOf(err))
	}
	for method, request := range map[string]proto.Message{
		docservice.MethodBatchGet: ids, docservice.MethodScan: &docservicepb.ScanRequest{Collection: "jobs"},
		docservice.MethodStats:      &docservicepb.StatsRequest{Collection: "jobs"},
		docservice.MethodDictionary: &docservicepb.DictionaryRequest{Collection: "jobs", Hash: make([]byte, 16)},
	} {
		require.Equal(t, boxcarrpc.CodePermissionDenied, boxcarrpc.CodeOf(f.call(method, request, nil)), method)
	}
	require.Zero(t, f.router.Forwards().Forwarded)
}

func TestMalformed(t *testing.T) {
	f := newFleet(t, 30)
	for _, method := range []string{docservice.MethodGet, docservice.MethodBatchGet, docservice.MethodScan, docservice.MethodStats, docservice.MethodDictionary} {
		_, err := f.router.Handle(t.Context(), method, []byte{0x0a}, nil)
		require.Equal(t, boxcarrpc.CodeInvalidArgument, boxcarrpc.CodeOf(err), method)
	}
	_, err := f.router.Handle(t.Context(), "/none", nil, nil)
	require.Equal(t, boxcarrpc.CodeUnimplemented, boxcarrpc.CodeOf(err))
	hash := make([]byte, 16)
	err = f.call(docservice.MethodDictionary, &docservicepb.DictionaryRequest{Collection: "jobs", Hash: hash}, nil)
	require.Equal(t, boxcarrpc.CodeUnavailable, boxcarrpc.CodeOf(err))
}
