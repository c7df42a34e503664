//go:build linux

package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery"
)

func row(t *testing.T, r *Registry, address string, o RowOptions) *Number {
	t.Helper()
	n, err := r.Row(discovery.Server{Address: address}, o)
	require.NoError(t, err)
	return n
}

func TestRowsOfAZone(t *testing.T) {
	address := startEtcd(t)
	zone := func(i int) RowOptions { return RowOptions{First: i, Step: 3, Rejoin: time.Minute} }
	var numbers []*Number
	for _, one := range []struct {
		address string
		zone    int
	}{{"a:1", 2}, {"b:1", 2}, {"c:1", 0}, {"d:1", 1}} {
		numbers = append(numbers, row(t, open(t, address, short), one.address, zone(one.zone)))
		held(t, numbers[len(numbers)-1])
	}
	r := open(t, address, short)
	rows, err := r.Rows(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[int]string{2: "a:1", 5: "b:1", 0: "c:1", 1: "d:1"}, rows)
	require.NoError(t, numbers[0].Close())
	rows, err = r.Rows(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a:1", rows[2], "the row is kept")
}

// Concurrent claimants of several zones take the lowest rows of their zones.
func TestZonesClaimAtOnce(t *testing.T) {
	address := startEtcd(t)
	seen := map[int]bool{}
	var numbers []*Number
	for i := range 9 {
		name := string(rune('a'+i)) + ":1"
		numbers = append(numbers, row(t, open(t, address, nil), name, RowOptions{First: i % 3, Step: 3}))
	}
	for i, n := range numbers {
		number := held(t, n)
		require.Equal(t, i%3, number%3)
		require.Less(t, number, 9)
		require.False(t, seen[number])
		seen[number] = true
	}
}

func TestRowIsShownWhenReady(t *testing.T) {
	r := open(t, startEtcd(t), short)
	w := watch(t, r.Source(nil))
	w.until(-1)
	n := row(t, r, "a:1", RowOptions{Step: 1})
	require.Equal(t, 0, held(t, n))
	held(t, backend(t, r, "b:1"))
	w.until(-1, "1=b:1")
	n.Show()
	w.until(-1, "0=a:1", "1=b:1")
	require.NoError(t, n.Close())
	w.until(-1, "1=b:1")
	early := row(t, r, "c:1", RowOptions{Step: 1})
	early.Show()
	w.until(-1, "1=b:1", "2=c:1")
}

// A dead server's row is not claimed by others until the time has passed; the server gets
// it back, also later if it is free.
func TestRowIsKeptForItsAddress(t *testing.T) {
	address := startEtcd(t)
	r := open(t, address, short)
	kept := RowOptions{Step: 1, Rejoin: time.Minute}
	a := row(t, r, "a:1", kept)
	require.Equal(t, 0, held(t, a))
	require.NoError(t, a.Close())
	require.Equal(t, 1, held(t, row(t, r, "b:1", kept)))
	require.Equal(t, 0, held(t, row(t, r, "a:1", kept)))

	// Killed: the claim expires.
	way := newLink(t, address)
	far := open(t, way.address(), short)
	c := row(t, far, "c:1", kept)
	require.Equal(t, 2, held(t, c))
	way.set(true)
	until(t, "the number is free", func() bool {
		seen, err := (&Number{registry: r, kind: backends}).look(t.Context(), leases{})
		return err == nil && !seen.taken[2]
	})
	require.Equal(t, 3, held(t, row(t, r, "d:1", kept)))
	way.set(false)
	require.Equal(t, 2, held(t, c))
}

// A server that was killed and comes back takes over its claim. It does not wait for the
// leases, and the number stays after they have expired.
func TestKilledRowIsTakenOver(t *testing.T) {
	address := startEtcd(t)
	r := open(t, address, short)
	w := watch(t, r.Source(nil))
	kept := RowOptions{Step: 1, Rejoin: time.Minute, Token: "first"}
	way := newLink(t, address)
	long := &Options{TTL: 5 * time.Second, CallTimeout: 500 * time.Millisecond}
	killed := row(t, open(t, way.address(), long), "a:1", kept)
	require.Equal(t, 0, held(t, killed))
	killed.Show()
	w.until(-1, "0=a:1")
	way.set(true)

	other := kept
	other.Token = "second"
	for _, o := range []RowOptions{other, {Step: 1}} {
		n := &Number{registry: r, kind: backends, entry: entry{Address: "a:1"}, row: &o}
		_, _, err := n.claim(t.Context(), -1)
		require.ErrorContains(t, err, "waiting for the old claim of this address to number 0")
	}

	begun := time.Now()
	back := row(t, r, "a:1", kept)
	require.Equal(t, 0, held(t, back))
	require.Less(t, time.Since(begun), long.TTL/2, "it waited for the old leases")
	w.until(-1) // the server is not ready yet
	back.Show()
	w.until(-1, "0=a:1")
	require.Equal(t, 1, held(t, row(t, r, "b:1", kept)))

	time.Sleep(2 * long.TTL)
	require.Equal(t, 0, held(t, back))
	require.Equal(t, map[int]string{0: "a:1", 1: "b:1"}, rowsOf(t, r))
	entries, err := clientOf(t, r).Get(t.Context(), r.entries(backends)+"0")
	require.NoError(t, err)
	require.Len(t, entries.Kvs, 1)
}

// Of several processes that claim to have one token, one gets the row at each moment.
func TestRowIsTakenOverOnce(t *testing.T) {
	r := open(t, startEtcd(t), short)
	kept := RowOptions{Step: 1, Rejoin: time.Minute, Token: "one"}
	first := &Number{registry: r, kind: backends, entry: entry{Address: "a:1"}, row: &kept}
	_, number, err := first.claim(t.Context(), -1)
	require.NoError(t, err)
	require.Equal(t, 0, number)
	seen, err := first.look(t.Context(), leases{})
	require.NoError(t, err)
	l, number, err := first.claim(t.Context(), -1)
	require.NoError(t, err)
	require.Equal(t, 0, number)
	won, err := first.take(t.Context(), l, 0, seen)
	require.NoError(t, err)
	require.False(t, won, "the claim was replaced after it was read")
}

func rowsOf(t *testing.T, r *Registry) map[int]string {
	t.Helper()
	rows, err := r.Rows(t.Context())
	require.NoError(t, err)
	return rows
}

func TestRowIsFreeAfterItsTime(t *testing.T) {
	r := open(t, startEtcd(t), short)
	brief := RowOptions{Step: 1}
	a := row(t, r, "a:1", brief)
	require.Equal(t, 0, held(t, a))
	require.NoError(t, a.Close())
	until(t, "the row is not kept", func() bool {
		rows, err := r.Rows(t.Context())
		return err == nil && len(rows) == 0
	})
	// Another server has it for a time: the first one takes the next, and then keeps that.
	b := row(t, r, "b:1", brief)
	require.Equal(t, 0, held(t, b))
	a = row(t, r, "a:1", brief)
	require.Equal(t, 1, held(t, a))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	until(t, "no row is kept", func() bool {
		rows, err := r.Rows(t.Context())
		return err == nil && len(rows) == 0
	})
	require.Equal(t, 1, held(t, row(t, r, "a:1", brief)), "its last number, although 0 is free")
}

// A server that comes back in another zone gives up the row of the first zone only if it
// is taken.
func TestFormerRowIsReleased(t *testing.T) {
	r := open(t, startEtcd(t), short)
	_, err := clientOf(t, r).Txn(t.Context()).Then(
		clientv3.OpPut(r.last()+"7", "a:1"), clientv3.OpPut(r.last()+"12", "a:1"),
		clientv3.OpPut(r.reservations()+"12", "a:1"), clientv3.OpPut(r.claims(backends)+"7", "b:1"),
	).Commit()
	require.NoError(t, err)
	require.Equal(t, 12, held(t, row(t, r, "a:1", RowOptions{Step: 1, Rejoin: time.Minute})))
	answer, err := clientOf(t, r).Get(t.Context(), r.last(), clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
}

func TestBadRows(t *testing.T) {
	r := open(t, "127.0.0.1:1", short)
	for _, o := range []RowOptions{{}, {First: -1, Step: 1}, {First: 3, Step: 3}, {Step: discovery.MaxNumber + 1}, {Step: 1, Rejoin: -1}} {
		_, err := r.Row(discovery.Server{Address: "a:1"}, o)
		require.Error(t, err, o)
	}
	for _, address := range []string{"", "a:1 b:1"} {
		_, err := r.Row(discovery.Server{Address: address}, RowOptions{Step: 1})
		require.Error(t, err)
	}
}
