package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// A work is the requests of a fleet's clients. Each client has a constant number in
// flight: when one ends, the next begins.
type work struct {
	f     *fleet
	rng   *rand.Rand
	mean  []float64 // by server: mean response time in nanoseconds; 0 for no response
	begun []int     // by server: requests
	fails []bool    // by server: whether requests fail
	busy  map[*client]map[int32]int64
}

const millisecond = 1e6

func newWork(f *fleet, rng *rand.PCG) *work {
	w := &work{f: f, rng: rand.New(rng), busy: map[*client]map[int32]int64{}}
	w.mean = make([]float64, len(f.boards))
	w.begun = make([]int, len(f.boards))
	w.fails = make([]bool, len(f.boards))
	for s := range w.mean {
		w.mean[s] = millisecond
	}
	for _, c := range f.all {
		w.busy[c] = map[int32]int64{}
	}
	return w
}

// begin starts a request.
func (w *work) begin(c *client) {
	entry, ok := c.ladder.Acquire(w.f.now, c.rng)
	require.True(w.f.t, ok)
	peer := c.ladder.slots[entry].peer
	w.begun[peer]++
	w.busy[c][entry] = never
	if mean := w.mean[peer]; mean > 0 {
		w.busy[c][entry] = w.f.now + int64(w.rng.ExpFloat64()*mean)
	}
}

// run ends a number of a client's requests and begins as many.
func (w *work) run(c *client, requests int) {
	for range requests {
		first := none
		for entry, end := range w.busy[c] {
			if first == none || end < w.busy[c][first] || end == w.busy[c][first] && entry < first {
				first = entry
			}
		}
		require.Less(w.f.t, w.busy[c][first], int64(never), "all requests are lost")
		w.f.now = max(w.f.now, w.busy[c][first])
		delete(w.busy[c], first)
		outcome := Success
		if w.fails[c.ladder.slots[first].peer] {
			outcome = Failure
		}
		w.f.release(c, first, outcome)
		w.begin(c)
	}
}

// share returns a server's requests relative to the mean of the others.
func (w *work) share(server int) float64 {
	others := 0
	for s, n := range w.begun {
		if s != server {
			others += n
		}
	}
	return float64(w.begun[server]) * float64(len(w.begun)-1) / float64(others)
}

// One of ten servers has half the speed; ten clients have twenty slots each. The table
// in doc.go is from this test with 200 fleets.
func TestTheShareOfAServerAtHalfSpeed(t *testing.T) {
	rng := testseed.PCG(t)
	const size, fleets = 20, 10
	for _, x := range []struct {
		concurrent int
		low, high  float64
	}{
		{1, 0.4, 1.8}, {2, 0.4, 1.2}, {5, 0.45, 0.75}, {10, 0.45, 0.62}, {15, 0.45, 0.62}, {20, 0.45, 0.62},
	} {
		share := 0.0
		for range fleets {
			f := newFleet(t, 10, 10, size, rng)
			f.trust()
			f.settle(rng)
			w := newWork(f, rng)
			w.mean[3] *= 2
			for _, c := range f.all {
				for range x.concurrent {
					w.begin(c)
				}
				w.run(c, 100)
			}
			clear(w.begun)
			for _, c := range f.all {
				w.run(c, 500)
			}
			share += w.share(3) / fleets
		}
		t.Logf("%2d of %d slots busy: %.2f", x.concurrent, size, share)
		require.True(t, share >= x.low && share <= x.high, "%d of %d slots busy: %.3f", x.concurrent, size, share)
	}
}

// A server stops answering. A client loses at most as many requests as it has slots
// there, starts none there while the server is suspect, and replaces the slots when the
// server is dead.
func TestAStoppedServer(t *testing.T) {
	rng := testseed.PCG(t)
	const size, concurrent, stopped = 20, 6, int32(3)
	f := newFleet(t, 10, 10, size, rng)
	f.trust()
	f.settle(rng)
	w := newWork(f, rng)
	for _, c := range f.all {
		for range concurrent {
			w.begin(c)
		}
		w.run(c, 500)
	}
	lost, affected := 0, 0
	for _, c := range f.all {
		w.mean[stopped] = 0
		before := w.begun[stopped]
		for range 1000 {
			if w.begun[stopped] == before {
				w.run(c, 1)
			}
		}
		if w.begun[stopped] == before {
			w.mean[stopped] = millisecond
			continue // the client holds none of the server's low slots
		}
		affected++
		liveness := NewLiveness(f.now, 1e9, 60e9)
		waitFor := func(want Verdict) {
			traffic := Traffic{Pending: true, P99: 5 * millisecond}
			for got := Fine; got != want; got = liveness.Step(f.now, traffic) {
				require.Equal(t, Fine, got)
				w.run(c, 1)
			}
		}
		waitFor(Suspect)
		c.ladder.SetSuspect(stopped, true)
		held := int(c.ladder.peers[stopped].held)
		require.LessOrEqual(t, w.begun[stopped]-before, held)
		before = w.begun[stopped]
		for range concurrent { // a higher load uses higher slots
			w.begin(c)
		}
		waitFor(Dead)
		require.Equal(t, before, w.begun[stopped], "a suspect server gets no requests")
		lost += w.lost(c)
		w.mean[stopped] = millisecond // for the next client
	}
	require.NotZero(t, affected)
	require.LessOrEqual(t, lost, f.boards[stopped].Taken())
	f.crash(stopped)
	f.settle(rng)
	f.check()
	for _, c := range f.all {
		require.True(t, c.ladder.Full())
		require.Zero(t, c.ladder.peers[stopped].held)
	}
}

// A slot number measures leases, not load. Idle clients hold the low slots of eight of
// ten servers. A busy client gets lower numbers on the other two and uses only these at
// low load. The limit of a server's slots in a ladder bounds the effect: with all slots
// busy no server has more than twice its share.
func TestHotClientAmongColdClients(t *testing.T) {
	rng := testseed.PCG(t)
	const servers, cold, size = 10, 8, 20
	f := newFleet(t, servers, 1, size, rng)
	f.trust()
	hot := f.all[0]
	for s := range cold {
		for range size {
			f.boards[s].Lease(NoSlot)
		}
	}
	for range 100 * servers {
		f.turn(hot)
	}
	require.True(t, hot.ladder.Full())
	w := newWork(f, rng)
	w.begin(hot)
	w.run(hot, 1000)
	require.Equal(t, make([]int, cold), w.begun[:cold], "servers of the idle clients get no requests")

	for range size - 1 {
		w.begin(hot)
	}
	clear(w.begun)
	const requests = 20_000
	w.run(hot, requests)
	for s, n := range w.begun {
		require.LessOrEqual(t, float64(n), 2*1.1*requests/servers, "server %d", s)
	}
}

// lost counts the requests of a client that never end.
func (w *work) lost(c *client) (n int) {
	for _, end := range w.busy[c] {
		if end == never {
			n++
		}
	}
	return n
}
