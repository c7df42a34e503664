package etcdmap

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/docservice/placement"
	"docstore/internal/crashtest"
	"docstore/internal/etcdtest"
	"docstore/internal/testseed"
)

// dying is the connection of a placer that is killed at one of its requests, before or after
// etcd executes it.
type dying struct {
	clientv3.KV
	kill     context.CancelFunc
	requests int
	last     int
	executes bool // the last request
}

func (d *dying) next(execute func()) (dead bool) {
	d.requests++
	if d.requests < d.last || d.requests == d.last && d.executes {
		execute()
	}
	if d.requests >= d.last {
		d.kill()
		return true
	}
	return false
}

func (d *dying) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (response *clientv3.GetResponse, err error) {
	if d.next(func() { response, err = d.KV.Get(ctx, key, opts...) }) {
		return nil, context.Canceled
	}
	return response, err
}

func (d *dying) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (response *clientv3.PutResponse, err error) {
	if d.next(func() { response, err = d.KV.Put(ctx, key, value, opts...) }) {
		return nil, context.Canceled
	}
	return response, err
}

// dyingTxn is a transaction of such a connection.
type dyingTxn struct {
	clientv3.Txn
	d *dying
}

func (d *dying) Txn(ctx context.Context) clientv3.Txn { return &dyingTxn{d.KV.Txn(ctx), d} }

func (t *dyingTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *dyingTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *dyingTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *dyingTxn) Commit() (response *clientv3.TxnResponse, err error) {
	if t.d.next(func() { response, err = t.Txn.Commit() }) {
		return nil, context.Canceled
	}
	return response, err
}

// A placer is killed at each of its requests, before and after etcd executes it. The next one
// continues: the plan is reached, and no step is taken twice.
func TestPlacerKilledAtEachStep(t *testing.T) {
	server := etcdtest.Start(t)
	const requests = 24 // more than assigning and moving two shards takes
	cases := testseed.Rand(t).Perm(2 * requests)
	for _, n := range cases[:crashtest.Share(8, len(cases))] {
		last, executes := 1+n/2, n%2 == 1
		t.Run(fmt.Sprint(last, "/", executes), func(t *testing.T) {
			t.Parallel()
			testKilledPlacer(t, fmt.Sprintf("etcd://%s/killed-%d-%t", server.Address, last, executes), last, executes)
		})
	}
}

func testKilledPlacer(t *testing.T, target string, last int, executes bool) {
	open := func() *Store {
		s, err := Open(target, "jobs", &Options{Lease: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		return s
	}
	s, victim := open(), open()
	require.NoError(t, s.Create(soon(t), newMap("g", 2), false))
	for _, name := range []string{"a", "b"} {
		r := s.Report(following(state(name, 0, 0, 1)))
		defer r.Close()
	}
	want(t, s, "a", "a")
	ctx, kill := context.WithCancel(soon(t))
	victim.client.KV = &dying{KV: victim.client.KV, kill: kill, last: last, executes: executes}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		victim.Place(ctx, "victim", func() []int64 { return nil })
	}()
	placed := func(column string) func(*placement.Map) bool {
		return func(m *placement.Map) bool { return m.Shards[0].Column == column && m.Shards[1].Column == column }
	}
	replaced := false
	replace := func() {
		select {
		case <-ended:
			if !replaced {
				replaced = true
				t.Cleanup(place(open(), "heir"))
			}
		default:
		}
	}
	for _, column := range []string{"a", "b"} {
		want(t, s, column, column)
		require.Eventually(t, func() bool {
			replace()
			m, _ := s.Map()
			return m != nil && placed(column)(m)
		}, patience, time.Millisecond)
	}
	m, _ := s.Map()
	require.LessOrEqual(t, m.Epoch, uint64(6), "assigned in up to two steps, started, and completed")
	require.Equal(t, "a", m.Shards[0].Previous)
	kill()
	<-ended
}
