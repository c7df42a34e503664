package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// The times of a silentFleet, in nanoseconds.
const (
	second     = 1e9
	answerTime = 2 * millisecond // of a lease request, with its connection
	dialTime   = second          // until a lease request to a silent server fails
	serveTime  = 20 * millisecond
)

// A silentFleet is a fleet in which an answer takes time and some servers never answer.
type silentFleet struct {
	*fleet
	silent  []bool
	rng     *rand.PCG
	pending []exchange
	loads   map[*client]int // requests of a client at a time
}

// An exchange is a lease request, or a request with its slot, in progress.
type exchange struct {
	at    int64 // of its end
	c     *client
	peer  int32
	below int32
	entry int32 // of a request; none for a lease request
}

func newSilentFleet(t testing.TB, servers, clients, size int, rng *rand.PCG) *silentFleet {
	return &silentFleet{
		fleet: newFleet(t, servers, clients, size, rng), silent: make([]bool, servers), rng: rng, loads: map[*client]int{},
	}
}

// silence makes a share of the servers silent.
func (f *silentFleet) silence(share float64) {
	for _, s := range rand.New(f.rng).Perm(len(f.silent))[:int(share*float64(len(f.silent)))] {
		f.silent[s] = true
	}
}

// advance runs the fleet for a time. It calls each after every event.
func (f *silentFleet) advance(until int64, each func()) {
	for _, c := range f.all {
		f.act(c)
	}
	for f.now < until {
		next := until
		for i := range f.pending {
			next = min(next, f.pending[i].at)
		}
		for _, c := range f.all {
			next = min(next, c.seeker.Wake(&c.ladder))
		}
		f.now = max(f.now, next)
		for i := 0; i < len(f.pending); {
			if x := f.pending[i]; x.at <= f.now {
				f.pending = slices.Delete(f.pending, i, i+1)
				f.end(x)
			} else {
				i++
			}
		}
		for _, c := range f.all {
			if c.seeker.Wake(&c.ladder) <= f.now {
				f.act(c)
			}
		}
		each()
	}
}

// act begins the requests and lease requests of a client that are due.
func (f *silentFleet) act(c *client) {
	for ; f.loads[c] > 0; f.loads[c]-- {
		entry, ok := c.ladder.Acquire(f.now, c.rng)
		if !ok {
			break
		}
		peer := c.ladder.slots[entry].peer
		at := f.now + jitter(f.rng, serveTime)
		if f.silent[peer] {
			at = never // until its connection breaks
		}
		f.pending = append(f.pending, exchange{at: at, c: c, peer: peer, entry: entry})
	}
	for {
		peer, below, ok := c.seeker.NextRequest(f.now, &c.ladder, c.rng)
		if !ok {
			return
		}
		at := f.now + jitter(f.rng, answerTime)
		if f.silent[peer] {
			at = f.now + dialTime
		}
		f.pending = append(f.pending, exchange{at: at, c: c, peer: peer, below: below, entry: none})
	}
}

// end ends an exchange.
func (f *silentFleet) end(x exchange) {
	c := x.c
	switch {
	case x.entry != none:
		f.loads[c]++
		lowest := f.boards[x.peer].LowestFree()
		f.answer(c, x.entry)
		c.seeker.Hint(f.now, &c.ladder, x.peer, lowest, c.rng)
	case f.silent[x.peer]:
		c.ladder.Quarantine(f.now, x.peer, c.rng)
		c.seeker.Done(f.now, &c.ladder, x.peer, Failed, c.rng)
	default:
		f.lease(c, x.peer, x.below)
	}
	f.act(c)
}

// lease handles the answer to a lease request.
func (f *silentFleet) lease(c *client, peer, below int32) {
	number, ok := f.boards[peer].Lease(below)
	if !ok {
		c.seeker.Done(f.now, &c.ladder, peer, Declined, c.rng)
		return
	}
	f.owner[peer][number] = c.id
	_, victim, gone, ok := c.ladder.Grant(peer, number)
	if !ok {
		f.giveBack(peer, number)
		c.seeker.Done(f.now, &c.ladder, peer, Declined, c.rng)
		return
	}
	if gone {
		f.giveBack(c.ladder.slots[victim].peer, c.ladder.slots[victim].number)
	}
	c.seeker.Done(f.now, &c.ladder, peer, Granted, c.rng)
}

// breakSilent ends all connections to silent servers, and their requests.
func (f *silentFleet) breakSilent() {
	for _, c := range f.all {
		for s := range f.silent {
			if !f.silent[s] {
				continue
			}
			for i := range c.ladder.slots {
				if slot := &c.ladder.slots[i]; slot.state != slotUnused && slot.peer == int32(s) {
					f.giveBack(slot.peer, slot.number)
					c.ladder.Lose(int32(i))
				}
			}
			c.ladder.Quarantine(f.now, int32(s), c.rng)
			c.seeker.RequestNow(f.now)
		}
	}
	f.pending = slices.DeleteFunc(f.pending, func(x exchange) bool {
		broke := x.entry != none && f.silent[x.peer]
		if broke {
			f.loads[x.c]++
		}
		return broke
	})
}

// full reports whether all ladders are full.
func (f *silentFleet) full() bool {
	return !slices.ContainsFunc(f.all, func(c *client) bool { return !c.ladder.Full() })
}

// optimal reports whether no server that answers has a free slot below one that a client
// holds. A client at its limit of slots of a server may replace only these.
func (f *silentFleet) optimal() bool {
	if !f.full() {
		return false
	}
	answering := int32(0)
	for _, silent := range f.silent {
		if !silent {
			answering++
		}
	}
	for _, c := range f.all {
		for s := range f.boards {
			peer := int32(s)
			if f.silent[s] {
				continue
			}
			if c.ladder.peers[s].held < max(2, 2*c.ladder.size/answering) {
				peer = none
			}
			if f.boards[s].LowestFree() < c.ladder.slots[c.ladder.highest(peer)].number {
				return false
			}
		}
	}
	return true
}

// Servers that accept and do not answer, or do not accept, delay neither the other lease
// requests nor the search for lower slots.
func TestSilentServersDoNotStarveTheOthers(t *testing.T) {
	const servers, clients, size, busy = 60, 5, 64, 20
	rng := testseed.PCG(t)
	for _, share := range []float64{0.1, 0.4, 0.7} {
		for name, start := range map[string]func(f *silentFleet){
			"fresh": func(f *silentFleet) { f.silence(share) },
			"idle": func(f *silentFleet) {
				f.advance(120*second, func() {})
				f.silence(share)
				f.breakSilent()
			},
			"under load": func(f *silentFleet) {
				f.trust() // otherwise a client has one slot of a server that it has not used
				for _, c := range f.all {
					f.loads[c] = busy
				}
				f.advance(20*second, func() {})
				f.silence(share)
				f.advance(21*second, func() {}) // their silence is detected
				f.breakSilent()
			},
		} {
			t.Run(fmt.Sprintf("%s/%.0f%%", name, 100*share), func(t *testing.T) {
				f := newSilentFleet(t, servers, clients, size, rng)
				start(f)
				from, full, optimal := f.now, int64(never), int64(never)
				f.advance(from+20*second, func() {
					if full == never && f.full() {
						full = f.now
					}
					if optimal == never && f.optimal() {
						optimal = f.now
					}
				})
				t.Logf("full after %.3f s, optimal after %.3f s", float64(full-from)/second, float64(optimal-from)/second)
				require.Less(t, full, from+2*int64(second), "full")
				require.Less(t, optimal, from+10*int64(second), "optimal")
				f.check()
			})
		}
	}
}

// Silent servers cost a ladder a few lease requests at a time. When they are back, they are soon found.
func TestFewProbesAreInProgress(t *testing.T) {
	rng := testseed.PCG(t)
	f := newSilentFleet(t, 60, 3, 64, rng)
	f.silence(0.4)
	f.advance(20*second, func() {})
	probed := map[int32]bool{}
	f.advance(20*second+10*60*second, func() {
		waiting := map[*client]int{}
		for _, x := range f.pending {
			if f.silent[x.peer] {
				waiting[x.c]++
				probed[x.peer] = true
				require.LessOrEqual(t, waiting[x.c], probeAtOnce)
			}
		}
	})
	require.Len(t, probed, 24, "each silent server is probed")
	require.True(t, f.optimal())
	f.check()
	back := slices.Index(f.silent, true)
	f.silent[back] = false
	f.advance(f.now+20*second, func() {})
	for _, c := range f.all {
		require.Equal(t, 37, c.ladder.Live(), "one server has returned")
	}
	clear(f.silent)
	f.advance(f.now+10*second, func() {})
	for _, c := range f.all {
		require.Equal(t, 60, c.ladder.Live(), "all servers have returned")
	}
}

// A server that accepts a connection and does not answer costs a new pool a request at a time for
// overdueAfter, not for the time until the request fails.
func TestAnOverdueRequestDoesNotCount(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFleet(t, 20, 1, 8, rng)
	c := f.all[0]
	next := func() (n int) {
		for {
			if _, _, ok := c.seeker.NextRequest(f.now, &c.ladder, rng); !ok {
				return n
			}
			n++
		}
	}
	require.Equal(t, fillAtOnce, next())
	f.now += overdueAfter - 1
	require.Zero(t, next())
	require.Equal(t, f.now+1, c.seeker.Wake(&c.ladder))
	f.now++
	require.Equal(t, fillAtOnce, next())
	require.Equal(t, 20, c.ladder.Live(), "the servers may be slow")
	f.check()
	for i := range c.ladder.peers {
		if c.ladder.peers[i].request == overdue {
			c.seeker.Done(f.now, &c.ladder, int32(i), Declined, rng)
		}
	}
	require.Zero(t, next(), "those in progress")
	f.check()
}
