package sharded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/placement"
	"docstore/docservice/sharded"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// patience is the timeout of waits: longer than they take on any loaded machine.
const patience = 3 * time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// cluster is a sharded collection served by columns of one server each.
type cluster struct {
	t       testing.TB
	layout  shard.Layout
	docs    map[string]string
	ids     []string
	shards  []*collection.Collection
	servers map[string]*server
	rows    map[string][]string // the other servers of a column
	current placement.Current
	epoch   uint64
}

// server is the server of a column.
type server struct {
	service *collection.Service
	boxcar  *boxcarrpc.Server
	address string
	delay   atomic.Int64 // of each call
	calls   atomic.Int64
}

func newCluster(t testing.TB, shards, documents int) *cluster {
	fs := vfs.NewMem()
	c := &cluster{t: t, layout: shard.Layout{Shards: shards, Seed: 11}, docs: map[string]string{}, servers: map[string]*server{}, rows: map[string][]string{}}
	w, err := shardset.Open("/queue", &shardset.Options{FS: fs, Layout: c.layout})
	require.NoError(t, err)
	for i := range documents {
		id := fmt.Sprintf("doc-%06d", i)
		c.ids = append(c.ids, id)
		c.docs[id] = fmt.Sprintf("document %d of a job posting with some text %d", i, i*i)
		require.NoError(t, w.Put(queue.Record{ID: []byte(id), Document: []byte(c.docs[id])}))
	}
	require.NoError(t, w.Close())
	for i := range c.layout.Shards {
		one, err := collection.Open(shard.Name("jobs", i), c.layout.Dir("/queue", i), c.layout.Dir("/data", i), &collection.Options{FS: fs})
		require.NoError(t, err)
		t.Cleanup(func() { one.Close() })
		require.NoError(t, one.WaitReady(soon(t)))
		c.shards = append(c.shards, one)
	}
	return c
}

// start starts the server of a column, without shards.
func (c *cluster) start(name string) *server {
	s := &server{service: collection.NewService()}
	s.service.Divide("jobs", c.layout)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	s.address = listener.Addr().String()
	s.boxcar = boxcarrpc.NewServer(func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		s.calls.Add(1)
		if d := time.Duration(s.delay.Load()); d > 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return dst, ctx.Err()
			}
		}
		return s.service.Handle(ctx, method, request, dst)
	}, &boxcarrpc.ServerOptions{HandshakeTimeout: patience, WriteTimeout: patience})
	served := make(chan error, 1)
	go func() { served <- s.boxcar.Serve(listener) }()
	c.t.Cleanup(func() {
		s.boxcar.Close()
		assert.ErrorIs(c.t, <-served, boxcarrpc.ErrServerClosed)
	})
	c.servers[name] = s
	return s
}

// hold lets a server serve a shard or not.
func (c *cluster) hold(column string, i int, held bool) {
	if held {
		c.servers[column].service.Replace(c.shards[i])
	} else {
		c.servers[column].service.Remove(shard.Name("jobs", i))
	}
}

// addRow starts another server of a column with its shards.
func (c *cluster) addRow(column string) *server {
	name := fmt.Sprint(column, "-", len(c.rows[column])+1)
	s := c.start(name)
	c.rows[column] = append(c.rows[column], name)
	m, _ := c.current.Map()
	for _, i := range m.Holds(column) {
		c.hold(name, i, true)
	}
	return s
}

// place publishes a placement.
func (c *cluster) place(columns []string) {
	c.epoch++
	m := &placement.Map{Collection: "jobs", Layout: c.layout, Epoch: c.epoch}
	for _, name := range columns {
		m.Shards = append(m.Shards, placement.Place{Column: name})
	}
	c.current.Set(m)
}

// even starts columns and places the shards on them in turn.
func (c *cluster) even(names ...string) []string {
	var columns []string
	for _, name := range names {
		c.start(name)
	}
	for i := range c.layout.Shards {
		columns = append(columns, names[i%len(names)])
		c.hold(columns[i], i, true)
	}
	c.place(columns)
	return columns
}

func (c *cluster) pool(column string) (*boxcarrpc.Pool, error) {
	addresses := []string{c.servers[column].address}
	for _, name := range c.rows[column] {
		addresses = append(addresses, c.servers[name].address)
	}
	return boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{
		Size: 8, Methods: docservice.IdempotentMethods(), DialTimeout: patience, SilenceTimeout: patience, MaxWait: patience,
	})
}

func (c *cluster) client() *sharded.Client {
	client, err := sharded.NewClient(&c.current, "jobs", &sharded.Options{Pool: c.pool})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { client.Close() })
	require.NoError(c.t, client.WaitReady(soon(c.t)))
	return client
}

// ask returns n ids; some of them do not exist.
func (c *cluster) ask(r *rand.Rand, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		if ids[i] = c.ids[r.IntN(len(c.ids))]; r.IntN(10) == 0 {
			ids[i] = fmt.Sprintf("none-%d", r.IntN(1000))
		}
	}
	return ids
}

// check requires the right answer for an id.
func (c *cluster) check(t testing.TB, id string, document []byte, err error) {
	t.Helper()
	if want, exists := c.docs[id]; exists {
		require.NoError(t, err, id)
		require.Equal(t, want, string(document))
		return
	}
	require.ErrorIs(t, err, docservice.ErrNotFound, id)
}

func TestGetAndGetMany(t *testing.T) {
	c := newCluster(t, 16, 1000)
	c.even("a", "b", "c")
	r := testseed.Rand(t)
	for _, client := range []*sharded.Client{c.client(), c.client().Plain()} {
		for _, n := range []int{0, 1, 50, 700} {
			ids, next := c.ask(r, n), 0
			require.NoError(t, client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
				require.Equal(t, next, i)
				next++
				c.check(t, ids[i], document, err)
				return nil
			}))
			require.Equal(t, n, next)
			for _, id := range ids[:min(n, 30)] {
				document, err := client.Get(soon(t), []byte("before "), id)
				require.Equal(t, "before ", string(document[:7]))
				c.check(t, id, document[7:], err)
			}
		}
		stop := errors.New("stop")
		require.ErrorIs(t, client.GetMany(soon(t), c.ids, func(i int, _ []byte, _ error) error {
			if i == 3 {
				return stop
			}
			require.Less(t, i, 3)
			return nil
		}), stop)
	}
}

// While shards move, an id that exists is always found, and one that does not is not.
func TestShardsMoveDuringCalls(t *testing.T) {
	c := newCluster(t, 8, 300)
	columns := c.even("a", "b", "c")
	client := c.client()
	r := testseed.Rand(t)
	ctx, cancel := context.WithCancel(soon(t))
	var callers sync.WaitGroup
	for range 4 {
		mine := rand.New(rand.NewPCG(r.Uint64(), 1))
		callers.Go(func() {
			for ctx.Err() == nil {
				ids := c.ask(mine, 1+mine.IntN(40))
				assert.NoError(t, client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
					c.check(t, ids[i], document, err)
					return nil
				}))
				document, err := client.Get(soon(t), nil, ids[0])
				c.check(t, ids[0], document, err)
			}
		})
	}
	for range 40 {
		i, to := r.IntN(8), []string{"a", "b", "c"}[r.IntN(3)]
		from := columns[i]
		c.hold(to, i, true)
		columns[i] = to
		c.place(columns)
		if from != to {
			c.hold(from, i, false)
		}
	}
	cancel()
	callers.Wait()
}

// A client with a wrong placement asks the wrong servers. They answer that the shard has
// moved, never that the document does not exist.
func TestWrongPlacement(t *testing.T) {
	c := newCluster(t, 4, 100)
	columns := c.even("a", "b")
	slices.Reverse(columns) // each shard is on the other column
	c.place(columns)
	client := c.client()
	ctx, cancel := context.WithTimeout(soon(t), 500*time.Millisecond)
	defer cancel()
	_, err := client.Get(ctx, nil, c.ids[0])
	require.ErrorIs(t, err, docservice.ErrUnavailable)
	require.NotErrorIs(t, err, docservice.ErrNotFound)
	ctx, cancel = context.WithTimeout(soon(t), 500*time.Millisecond)
	defer cancel()
	require.NoError(t, client.GetMany(ctx, c.ids[:20], func(_ int, _ []byte, err error) error {
		require.ErrorIs(t, err, docservice.ErrUnavailable)
		return nil
	}))
	// The right placement arrives during the call.
	slices.Reverse(columns)
	time.AfterFunc(20*time.Millisecond, func() { c.place(columns) })
	for _, id := range c.ids {
		document, err := client.Get(soon(t), nil, id)
		c.check(t, id, document, err)
	}
}

// A new holder whose only server is not ready for a shard yet does not fail calls while the
// previous one serves it, also if each attempt finds another placement.
func TestHolderIsNotReady(t *testing.T) {
	c := newCluster(t, 4, 100)
	c.even("a")
	c.start("b").service.Expect("jobs", []int{0, 1, 2, 3})
	changes := 0
	place := func() {
		c.epoch++
		m := &placement.Map{Collection: "jobs", Layout: c.layout, Epoch: c.epoch, Shards: make([]placement.Place, 4)}
		for i := range m.Shards {
			m.Shards[i] = placement.Place{Column: "b", Previous: "a"}
		}
		c.current.Set(m)
	}
	place()
	source := refreshed{&c.current, func() {
		if changes++; changes%5 != 0 {
			place()
		}
	}}
	client, err := sharded.NewClient(source, "jobs", &sharded.Options{Pool: c.pool})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	require.NoError(t, client.WaitReady(soon(t)))
	for _, id := range c.ids[:20] {
		document, err := client.Get(soon(t), nil, id)
		c.check(t, id, document, err)
	}
	require.NoError(t, client.GetMany(soon(t), c.ids, func(i int, document []byte, err error) error {
		c.check(t, c.ids[i], document, err)
		return nil
	}))
	// Without the previous holder the documents are unavailable.
	for i := range c.layout.Shards {
		c.hold("a", i, false)
	}
	c.servers["a"].service.Expect("jobs", []int{0, 1, 2, 3})
	_, err = client.Get(soon(t), nil, c.ids[0])
	require.ErrorIs(t, err, docservice.ErrUnavailable)
}

// The error of a call whose context ends in a later attempt also has the last answer.
func TestContextEndsInLaterAttempt(t *testing.T) {
	c := newCluster(t, 2, 20)
	c.even("a")
	c.hold("a", 0, false)
	c.hold("a", 1, false)
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	client, err := sharded.NewClient(refreshed{&c.current, func() {
		c.servers["a"].delay.Store(int64(time.Hour))
		time.AfterFunc(20*time.Millisecond, cancel)
	}}, "jobs", &sharded.Options{Pool: c.pool})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	require.NoError(t, client.WaitReady(soon(t)))
	_, err = client.Get(ctx, nil, c.ids[0])
	require.ErrorIs(t, err, docservice.ErrUnavailable)
	require.ErrorIs(t, err, docservice.ErrMoved)
	require.ErrorIs(t, err, context.Canceled)
}

// refreshed is a source that calls a function when a client reads the placement again.
type refreshed struct {
	placement.Source
	refresh func()
}

func (s refreshed) Refresh(ctx context.Context, epoch uint64) error {
	s.refresh()
	return s.Source.Refresh(ctx, epoch)
}

// A column that does not answer affects only its own ids.
func TestSlowAndDeadColumn(t *testing.T) {
	c := newCluster(t, 4, 100)
	columns := c.even("a", "b")
	client := c.client()
	check := func(timeout time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(soon(t), timeout)
		defer cancel()
		require.NoError(t, client.GetMany(ctx, c.ids, func(i int, document []byte, err error) error {
			if columns[c.layout.ShardString(c.ids[i])] == "b" {
				require.ErrorIs(t, err, docservice.ErrUnavailable)
				return nil
			}
			c.check(t, c.ids[i], document, err)
			return nil
		}))
	}
	c.servers["b"].delay.Store(int64(time.Hour))
	check(200 * time.Millisecond)
	c.servers["b"].boxcar.Close()
	check(2 * time.Second)
}

// While no server of a column can be reached, its ids fail at once, the others are answered,
// and the placement is not read again. The columns that held a shard before are asked.
func TestDeadColumn(t *testing.T) {
	c := newCluster(t, 4, 100)
	columns := c.even("a", "b", "c")
	refreshes := 0
	client, err := sharded.NewClient(refreshed{&c.current, func() { refreshes++ }}, "jobs", &sharded.Options{Pool: c.pool})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	require.NoError(t, client.WaitReady(soon(t)))
	require.NoError(t, c.servers["b"].boxcar.Close())
	dead := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, boxcarrpc.ErrNoServer)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
	check := func(lost func(shard int) bool) {
		t.Helper()
		for _, id := range c.ids[:20] {
			document, err := client.Get(soon(t), nil, id)
			if lost(c.layout.ShardString(id)) {
				dead(err)
				continue
			}
			c.check(t, id, document, err)
		}
		require.NoError(t, client.GetMany(soon(t), c.ids, func(i int, document []byte, err error) error {
			if lost(c.layout.ShardString(c.ids[i])) {
				require.ErrorIs(t, err, docservice.ErrUnavailable)
				dead(err)
				return nil
			}
			c.check(t, c.ids[i], document, err)
			return nil
		}))
	}
	check(func(i int) bool { return columns[i] == "b" })
	require.Zero(t, refreshes)

	m, _ := c.current.Map()
	next := *m
	next.Epoch, next.Shards = m.Epoch+1, slices.Clone(m.Shards)
	for i := range next.Shards {
		if columns[i] == "b" {
			next.Shards[i].Previous = "a" // which serves the shard
			c.hold("a", i, true)
		}
	}
	c.current.Set(&next)
	check(func(int) bool { return false })
	require.Zero(t, refreshes)
	for i := range next.Shards {
		if columns[i] == "b" {
			c.hold("a", i, false) // it answers MOVED
		}
	}
	ctx := soon(t)
	require.NoError(t, client.GetMany(ctx, c.ids, func(i int, document []byte, err error) error {
		if columns[c.layout.ShardString(c.ids[i])] == "b" {
			require.ErrorIs(t, err, docservice.ErrUnavailable)
			return nil
		}
		c.check(t, c.ids[i], document, err)
		return nil
	}))
	require.NoError(t, ctx.Err())
	require.Zero(t, refreshes)
}

func TestNoPlacement(t *testing.T) {
	var current placement.Current
	client, err := sharded.NewClient(&current, "jobs", &sharded.Options{Pool: func(string) (*boxcarrpc.Pool, error) { return nil, errors.New("none") }})
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Get(soon(t), nil, "x")
	require.ErrorIs(t, err, sharded.ErrNoPlacement)
	require.ErrorIs(t, err, docservice.ErrUnavailable)
	require.NoError(t, client.GetMany(soon(t), []string{"x"}, func(_ int, _ []byte, err error) error {
		require.ErrorIs(t, err, sharded.ErrNoPlacement)
		return nil
	}))
	_, err = client.Scan(soon(t), docservice.ScanOptions{}, nil)
	require.ErrorIs(t, err, sharded.ErrNoPlacement)
	_, err = sharded.NewClient(&current, "jobs", nil)
	require.Error(t, err)
}

func TestScan(t *testing.T) {
	c := newCluster(t, 8, 1000)
	columns := c.even("a", "b", "c")
	client := c.client()
	r := testseed.Rand(t)
	for _, o := range []docservice.ScanOptions{{Limit: 1}, {Limit: 77}, {Limit: 300, IDsOnly: true}, {Prefix: []byte("doc-0001"), Limit: 9}} {
		if o.Limit == 1 {
			o.Prefix = []byte("doc-00001")
		}
		var want, got []string
		for _, id := range c.ids {
			if bytes.HasPrefix([]byte(id), o.Prefix) {
				want = append(want, id)
			}
		}
		for {
			before := len(got)
			next, err := client.Scan(soon(t), o, func(id string, document []byte, err error) error {
				require.NoError(t, err)
				if !o.IDsOnly {
					require.Equal(t, c.docs[id], string(document))
				}
				got = append(got, id)
				return nil
			})
			require.NoError(t, err)
			require.LessOrEqual(t, len(got)-before, o.Limit)
			if next == nil {
				break
			}
			o.After = next
			// The shards move between pages.
			i, to := r.IntN(8), []string{"a", "b", "c"}[r.IntN(3)]
			c.hold(columns[i], i, false)
			c.hold(to, i, true)
			columns[i] = to
			c.place(columns)
		}
		require.Equal(t, want, got)
	}
	stats, err := client.Stats(soon(t))
	require.NoError(t, err)
	require.EqualValues(t, len(c.ids), stats.GetSegmentDocuments())
	require.True(t, stats.GetReady())
}

// While a row lacks a shard for long, the other rows of its column answer: no call fails, and
// none needs retries of the pool, whose budget is for servers that fail.
func TestRowLacksShard(t *testing.T) {
	const lacking = 3
	c := newCluster(t, 8, 500)
	c.even("a")
	c.addRow("a").service.Expect("jobs", []int{0, 1, 2, 3, 4, 5, 6, 7})
	c.addRow("a")
	c.hold("a-1", lacking, false)
	for _, s := range c.servers {
		s.delay.Store(int64(time.Millisecond))
	}
	client := c.client()
	load := func(call func(r *rand.Rand)) {
		var callers sync.WaitGroup
		for n := range 7 { // the pool has 8 slots
			callers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(n), 2))
				for range 150 {
					call(r)
				}
			})
		}
		callers.Wait()
	}
	load(func(r *rand.Rand) {
		ids := c.ask(r, 40)
		assert.NoError(t, client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
			c.check(t, ids[i], document, err)
			return nil
		}))
	})
	lacked := func(r *rand.Rand) string {
		for {
			if id := c.ask(r, 1)[0]; c.layout.ShardString(id) == lacking {
				return id
			}
		}
	}
	load(func(r *rand.Rand) {
		ids := []string{lacked(r), lacked(r)}
		assert.NoError(t, client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
			c.check(t, ids[i], document, err)
			return nil
		}))
	})
	for _, one := range []*sharded.Client{client, client.Plain()} {
		load(func(r *rand.Rand) {
			id := lacked(r)
			document, err := one.Get(soon(t), nil, id)
			c.check(t, id, document, err)
		})
	}
	require.Zero(t, client.PoolStats()[0].Retries)
}

// A sub-batch whose server is slow is answered by another row, within the budget.
func TestHedging(t *testing.T) {
	c := newCluster(t, 8, 500)
	c.even("a", "b")
	slow := c.addRow("a")
	c.addRow("b")
	client := c.client()
	r := testseed.Rand(t)
	batch := func() {
		ids := c.ask(r, 24)
		require.NoError(t, client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
			c.check(t, ids[i], document, err)
			return nil
		}))
	}
	for range 200 { // the usual times become known, and the budget is saved up
		batch()
	}
	slow.delay.Store(int64(300 * time.Millisecond)) // a sub-batch waits for it if the budget is used up
	won := func() (won, hedges, calls uint64) {
		for _, s := range client.PoolStats() {
			won, hedges, calls = won+s.HedgesWon, hedges+s.Hedges, calls+s.Calls
		}
		return won, hedges, calls
	}
	before, _, _ := won()
	for n := 0; n == 0; {
		batch()
		now, _, _ := won()
		n = int(now - before)
	}
	slow.delay.Store(0)
	for range 100 {
		batch()
	}
	_, hedges, calls := won()
	require.LessOrEqual(t, hedges, calls/20+16)
}
