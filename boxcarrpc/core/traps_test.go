package core

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// Known problems of using the lowest slot first, on virtual time. See also
// TestChurnEndsAndAFlatLadderAsksOnceAMinute and TestAStoppedServer.

// A black hole fails every request at once, so that its low slots are always free.
// Without ejection it gets most of the requests.
func TestTrapABlackHoleIsLeftOut(t *testing.T) {
	rng := testseed.PCG(t)
	const fleets = 5
	share := 0.0
	for range fleets {
		share += shareAfterBlackHole(t, rng)
	}
	// The share of one fleet has a standard deviation of 0.2, as that of any other server.
	require.InDelta(t, 1, share/fleets, 0.5, "the server has its share again")
}

// shareAfterBlackHole returns the share of a server that was a black hole and has recovered.
func shareAfterBlackHole(t *testing.T, rng *rand.PCG) float64 {
	const servers, clients, size, concurrent = 10, 10, 20, 5
	f := newFleet(t, servers, clients, size, rng)
	f.trust()
	f.settle(rng)
	w := newWork(f, rng)
	for s := range w.mean {
		w.mean[s] = 100 * millisecond
	}
	for _, c := range f.all {
		for range concurrent {
			w.begin(c)
		}
	}
	const hole = 3
	w.mean[hole], w.fails[hole] = millisecond/10, true
	clear(w.begun)
	const requests = 3000 // per client: a minute
	for range requests {
		for _, c := range f.all {
			w.run(c, 1)
		}
	}
	// Per client: 6 requests until the ejection, those in flight, and one or two after
	// each ejection of 1, 2, 4, 8, 16 and 32 s, which jitter may halve.
	require.LessOrEqual(t, w.begun[hole], clients*(6+concurrent+2*8))
	for s, n := range w.begun {
		if s != hole {
			require.Greater(t, n, 0, "server %d", s)
		}
	}

	w.mean[hole], w.fails[hole] = 100*millisecond, false // the server recovers
	f.now += 2 * ejectLimit
	for range 20 {
		for _, c := range f.all {
			w.run(c, concurrent)
		}
	}
	clear(w.begun)
	for range 400 {
		for _, c := range f.all {
			w.run(c, 1)
		}
	}
	return w.share(hole)
}

// A new black hole has never answered successfully and offers slot 0 to all clients.
func TestTrapANewBlackHoleGetsLittle(t *testing.T) {
	rng := testseed.PCG(t)
	const servers, clients, size = 10, 10, 20
	f := newFleet(t, servers, clients, size, rng)
	f.trust()
	f.settle(rng)
	hole := int(f.addServer())
	f.now += 2 * welcomeWithin
	f.settle(rng)
	w := newWork(f, rng)
	w.mean[hole], w.fails[hole] = millisecond/10, true
	for _, c := range f.all {
		for range 3 {
			w.begin(c)
		}
	}
	for range 1000 {
		for _, c := range f.all {
			w.run(c, 1)
		}
	}
	require.LessOrEqual(t, w.begun[hole], clients*3)
	for _, c := range f.all {
		require.LessOrEqual(t, c.ladder.Peer(int32(hole)).Held, 1, "an untrusted server has one slot")
	}
}

// until makes the clients' lease requests in the order of time.
func (f *fleet) until(end int64) {
	for {
		first := slices.MinFunc(f.all, func(a, b *client) int {
			switch x, y := a.seeker.Wake(&a.ladder), b.seeker.Wake(&b.ladder); {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		})
		if first.seeker.Wake(&first.ladder) > end {
			f.now = end
			return
		}
		f.turn(first)
	}
}

// A restarted or a new server offers its lowest slots to all clients at the same moment.
// Their lease requests are spread over half a second, and the server gets little more
// than its share of the requests.
func TestTrapTheRestartHerd(t *testing.T) {
	const servers = 10
	for name, appear := range map[string]func(f *fleet) (server int32){
		"restarted": func(f *fleet) int32 {
			f.crash(4)
			f.until(f.now + 30e9)
			f.down[4] = false
			return 4
		},
		"new": func(f *fleet) int32 { return f.addServer() },
	} {
		t.Run(name, func(t *testing.T) {
			rng := testseed.PCG(t)
			const clients, size, concurrent = 50, 20, 6
			f := newFleet(t, servers, clients, size, rng)
			f.trust()
			f.settle(rng)
			f.until(f.now + 120e9) // lease requests are rare by then
			server := appear(f)
			most, leased := f.mostLeasesAtOnce(server)
			total := f.boards[server].Taken()
			require.Greater(t, total, clients*size/servers/2, "the clients lease slots")
			require.LessOrEqual(t, most, total/8, "the clients lease slots at once: %v", leased[:100])
			f.check()

			w := newWork(f, rng)
			for _, c := range f.all {
				for range concurrent {
					w.begin(c)
				}
			}
			for range 200 {
				for _, c := range f.all {
					w.run(c, 1)
				}
			}
			require.LessOrEqual(t, w.share(int(server)), 1.5)
		})
	}
}

// mostLeasesAtOnce runs the clients for 10 s and counts the slots that a server leases in
// each 10 ms.
func (f *fleet) mostLeasesAtOnce(server int32) (most int, leased []int) {
	for end := f.now + 10e9; f.now < end; {
		before := f.boards[server].Taken()
		f.until(f.now + 10e6)
		leased = append(leased, f.boards[server].Taken()-before)
		for _, c := range f.all {
			if c.ladder.Peer(server).Held > 0 { // a request succeeds
				c.ladder.RecordOutcome(f.now, server, Success, c.rng)
			}
		}
	}
	return slices.Max(leased), leased
}

// With a fixed order among equal numbers the first servers would get all light traffic,
// also while a burst makes them slow. With the longest idle slot first every server gets
// the same, and a server that was slow gets its share again.
func TestTrapPreferenceIsNoSelfKeepingOverload(t *testing.T) {
	rng := testseed.PCG(t)
	for _, concurrent := range []int{1, 3, 20} {
		const servers, requests = 50, 20_000
		f := newFleet(t, servers, 1, servers, rng)
		f.trust()
		f.settle(rng)
		c := f.all[0]
		w := newWork(f, rng)
		for range concurrent {
			w.begin(c)
		}
		w.run(c, requests)
		for s, n := range w.begun {
			require.InDelta(t, requests/servers, n, requests/servers/2, "server %d of %d, %d at once", s, servers, concurrent)
		}
		w.mean[7] *= 50 // a burst
		w.run(c, requests/10)
		w.mean[7] /= 50
		w.run(c, requests/10) // ends its slow requests
		clear(w.begun)
		w.run(c, requests)
		require.InDelta(t, 1, w.share(7), 0.5, "%d at once", concurrent)
	}
}
