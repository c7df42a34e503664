package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/core"
	"docstore/internal/testseed"
)

// all runs a test for each policy.
func all(t *testing.T, test func(t *testing.T, name string)) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

func TestEveryPolicyUsesAllItsServers(t *testing.T) {
	all(t, func(t *testing.T, name string) {
		f := newFarm(t, name, 20, nil, testseed.PCG(t))
		f.load(1000, 20e9) // half of what they can do
		require.Zero(t, f.refused)
		require.Zero(t, f.failed)
		begun := f.begun()
		if name == "viamedia" { // as many connections as there were requests at a time
			require.Greater(t, used(begun), 8, "%v", begun)
			return
		}
		require.Equal(t, 20, used(begun), "%v", begun)
		require.Less(t, slices.Max(begun), 3*sum(begun)/20, "%v", begun)
	})
}

func TestEveryPolicyRetriesElsewhere(t *testing.T) {
	all(t, func(t *testing.T, name string) {
		rng := testseed.PCG(t)
		f := newFarm(t, name, 5, nil, rng)
		f.load(100, 3e9) // servers are known, and trusted
		for range 200 {
			var tried []int32
			for range 4 {
				server := f.request(tried)
				require.NotContains(t, tried, server)
				tried = append(tried, server)
				f.until(f.now + 1e9)
			}
		}
	})
}

func TestEveryPolicyPassesOverABrokenServerAndComesBack(t *testing.T) {
	all(t, func(t *testing.T, name string) {
		f := newFarm(t, name, 10, nil, testseed.PCG(t))
		f.load(300, 5e9)
		f.crash(3)
		f.until(f.now + 1e9) // requests in flight have ended
		f.failed = 0
		f.forget()
		f.load(300, 10e9)
		require.Zero(t, f.begun()[3])
		if name == "viamedia" { // it finds out by asking, and then has no connection to it
			require.LessOrEqual(t, f.failed, f.picked/10)
			return
		}
		require.Equal(t, 9, used(f.begun()))
		require.Zero(t, f.failed)
		f.servers[3].down = false
		f.until(f.now + 10e9)
		f.load(900, 20e9)
		require.NotZero(t, f.begun()[3], "it is back")
	})
}

func TestEveryPolicyLeavesServersThatLeft(t *testing.T) {
	all(t, func(t *testing.T, name string) {
		f := newFarm(t, name, 10, nil, testseed.PCG(t))
		f.load(300, 3e9)
		f.request(nil) // ends after its server has left, if that is it
		f.policy.Leave(f.now, 7, f.rng)
		f.policy.Leave(f.now, 8, f.rng)
		f.policy.Join(f.now, 8, f.rng)
		f.until(f.now + 2*leaveAfter)
		f.forget()
		f.load(600, 10e9)
		require.Zero(t, f.begun()[7])
		if name != "viamedia" {
			require.Equal(t, 9, used(f.begun()))
		}
	})
}

func TestWithoutAServerThereIsNoChoice(t *testing.T) {
	all(t, func(t *testing.T, name string) {
		makePolicy, err := ByName(name, nil)
		require.NoError(t, err)
		p, rng := makePolicy(), testseed.PCG(t)
		_, ok := p.Pick(0, nil, rng)
		require.False(t, ok)
		_, ok = p.Next(0, rng)
		require.False(t, ok)
		p.Learn(0, News{Kind: Lost, Server: 5, Entry: -1}, rng) // of no server that it knows
		p.Leave(0, 5, rng)
	})
}

func TestAStepAllocatesNothing(t *testing.T) {
	all(t, func(t *testing.T, name string) {
		f := newFarm(t, name, 50, nil, testseed.PCG(t))
		f.load(1000, 5e9)
		f.until(f.now + 1e9)
		p, rng, now := f.policy, f.rng, f.now
		step := func() {
			now += 1e6
			c, ok := p.Pick(now, nil, rng)
			require.True(t, ok)
			for range 100 {
				a, ok := p.Next(now, rng)
				if !ok {
					break
				}
				n := News{Kind: Probed, Server: a.Server, Entry: a.Entry, Took: 1e6, Report: Silent}
				if a.Kind == Connect {
					n.Kind = Declined // only slots still asks
				}
				p.Learn(now, n, rng)
			}
			p.Done(now, c, Result{Outcome: Success, Took: 1e6, Report: Silent}, rng)
		}
		for range 1000 {
			step()
		}
		require.Zero(t, testing.AllocsPerRun(1000, step))
	})
}

func TestByName(t *testing.T) {
	_, err := ByName("best", nil)
	require.ErrorContains(t, err, `unknown policy "best": must be one of slots, formulaic`)
	_, err = ByName("slots", &Options{Size: -1})
	require.ErrorContains(t, err, "must be positive")
	one, err := ByName("p2c", nil)
	require.NoError(t, err)
	require.NotSame(t, one(), one())
}

// at is the servers of n requests that are under way together.
func at(f *farm, n int) (servers []int32) {
	for range n {
		servers = append(servers, f.request(nil))
	}
	return servers
}

// most is how many of the requests one server has.
func most(servers []int32) (n int) {
	counts := map[int32]int{}
	for _, s := range servers {
		counts[s]++
		n = max(n, counts[s])
	}
	return n
}

func TestBallsIntoBins(t *testing.T) {
	const n = 1000
	for _, x := range []struct {
		name        string
		least, most int
	}{
		{"random", 4, 9}, // ln(n) / ln(ln(n)) = 3.6, and a little
		{"p2c", 2, 4},    // log2 ln n = 2.8
		{"leastrequest", 1, 1},
		{"roundrobin", 1, 1},
		{"formulaic", 1, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := newFarm(t, x.name, n, nil, testseed.PCG(t))
			got := most(at(f, n))
			require.GreaterOrEqual(t, got, x.least)
			require.LessOrEqual(t, got, x.most)
		})
	}
}

// One request at a time: p2c knows nothing that random does not.
func TestAColdClientChoosesAtRandom(t *testing.T) {
	for _, name := range []string{"random", "p2c", "leastrequest"} {
		t.Run(name, func(t *testing.T) {
			f := newFarm(t, name, 100, nil, testseed.PCG(t))
			for range 100 {
				f.request(nil)
				f.until(f.now + 1e9)
			}
			idle := 100 - used(f.begun())
			require.InDelta(t, 36.8, float64(idle), 15)
		})
	}
}

// A server ten times as slow gets few requests of a client that measures time.
func TestASlowServer(t *testing.T) {
	share := func(name string) float64 {
		f := newFarm(t, name, 10, nil, testseed.PCG(t))
		f.servers[4].service *= 10
		f.load(200, 10e9)
		f.forget()
		f.load(200, 60e9)
		begun := f.begun()
		return float64(begun[4]) * 9 / float64(sum(begun)-begun[4])
	}
	require.InDelta(t, 1, share("random"), 0.2)
	require.InDelta(t, 1, share("roundrobin"), 0.02)
	require.Less(t, share("leastrequest"), 0.6)
	require.Less(t, share("prequal"), 0.3)
	require.Less(t, share("p2c"), 0.9)
	require.Less(t, share("slots"), 0.9)
}

func TestSlotsUsesTheLowest(t *testing.T) {
	f := newFarm(t, "slots", 10, &Options{Size: 20}, testseed.PCG(t))
	for range 200 { // all are trusted
		at(f, 20)
		f.until(f.now + 1e9)
	}
	ladder := &f.policy.(*Slots).Ladder
	require.Equal(t, 20, ladder.Held())
	lowest := at(f, 10)
	require.Equal(t, 1, most(lowest), "slot 0 of each server first")
	require.Equal(t, 2, most(append(lowest, at(f, 10)...)))
	require.Equal(t, int32(-1), f.request(nil), "all slots are busy")
	require.Equal(t, 1, f.refused)
}

func TestSlotsOfAServerOfMoreWeightCountAsLower(t *testing.T) {
	weight := func(server int32) float64 { return float64(1 + server%2) }
	f := newFarm(t, "slots", 10, &Options{Size: 30, Weight: weight}, testseed.PCG(t))
	for range 200 { // all are trusted
		at(f, 30)
		f.until(f.now + 1e9)
	}
	requests := make(map[float64]int)
	for _, server := range at(f, 15) {
		requests[weight(server)]++
	}
	require.Equal(t, map[float64]int{1: 5, 2: 10}, requests, "slot 0 of each, and slot 1 of the larger ones")
}

func TestSlotsGiveBackWhatTheyDoNotHold(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFarm(t, "slots", 10, nil, rng)
	f.load(500, 10e9)
	f.crash(2)
	f.policy.Learn(f.now, News{Kind: Draining, Server: 5, Entry: -1}, rng)
	f.load(500, 10e9)
	f.servers[2].down = false
	f.policy.Leave(f.now, 6, rng)
	f.load(500, 60e9)
	f.until(f.now + 5e9)
	held := 0
	for i := range f.servers {
		held += f.servers[i].board.Taken()
	}
	require.Equal(t, f.policy.(*Slots).Held(), held)
	require.Zero(t, f.servers[6].board.Taken())
}

func TestFormulaicProbesEachServer(t *testing.T) {
	f := newFarm(t, "formulaic", 40, nil, testseed.PCG(t))
	f.probes = 0
	f.until(f.now + 10*keepAlive)
	require.InDelta(t, 400, f.probes, 2)
	// A probe that is not answered marks the connection broken without a request.
	f.servers[9].down = true
	f.until(f.now + keepAlive + 1e9)
	f.forget()
	at(f, 400)
	require.Zero(t, f.begun()[9])
	require.Equal(t, 39, used(f.begun()))
}

func TestViamediaPoolsConnectionsForSomeMinutes(t *testing.T) {
	f := newFarm(t, "viamedia", 1000, nil, testseed.PCG(t))
	first := f.request(nil)
	for range 20 {
		f.until(f.now + 5e9)
		require.Equal(t, first, f.request(nil), "the pooled connection is used again")
	}
	f.until(f.now + lifetime)
	require.Equal(t, 1, f.disconnects, "it has expired")
	// A hot client has more connections than a cold one.
	at(f, 50)
	f.until(f.now + 1e9)
	pooled := f.policy.(*viamedia)
	require.Len(t, pooled.idle, 50)
	f.until(f.now + lifetime)
	require.Empty(t, pooled.idle)
	require.Equal(t, 51, f.disconnects)
}

func TestViamediaKnowsAMillionServersByTheirNumber(t *testing.T) {
	makePolicy, err := ByName("viamedia", &Options{Size: 100})
	require.NoError(t, err)
	p, rng := makePolicy().(*viamedia), testseed.PCG(t)
	p.Join(0, 999_999, rng)
	p.Leave(0, 5, rng)
	seen := map[int32]bool{}
	for range 100 {
		c, ok := p.Pick(0, nil, rng)
		require.True(t, ok)
		require.True(t, c.Fresh)
		seen[c.Server] = true
	}
	require.Greater(t, len(seen), 95)
	_, ok := p.Pick(0, nil, rng)
	require.False(t, ok, "as many connections as it may have")
	require.Len(t, p.conns, 100)
}

func TestPrequalsRule(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFarm(t, "prequal", 40, nil, rng)
	p := f.policy.(*prequal)
	answers := func(list ...prequalAnswer) {
		p.pool = p.pool[:0]
		for i, a := range list {
			a.at, a.entry, a.use, a.left = f.now, int32(i), p.members[i].use, 1
			p.pool = append(p.pool, a)
		}
	}
	chosen := func() int32 {
		c, ok := p.Pick(f.now, nil, rng)
		require.True(t, ok)
		return c.Entry
	}
	p.hot = 3
	answers(prequalAnswer{inFlight: 4, latency: 1}, prequalAnswer{inFlight: 3, latency: 30}, prequalAnswer{inFlight: 0, latency: 50})
	require.Equal(t, int32(1), chosen(), "the quickest of those that are not crowded")
	answers(prequalAnswer{inFlight: 6, latency: 1}, prequalAnswer{inFlight: 4, latency: 30}, prequalAnswer{inFlight: 5, latency: 2})
	require.Equal(t, int32(1), chosen(), "all are crowded: the one with the fewest")
	answers(prequalAnswer{inFlight: 0, latency: 1}, prequalAnswer{inFlight: 0, latency: 2})
	f.now += 2e9
	p.forget(f.now)
	require.Empty(t, p.pool, "they are old")
}

// A server that was heard of twice has not two places: chosen by the one, it would
// be quiet still by the other.
func TestPrequalKeepsTheLastAnswerOfAServer(t *testing.T) {
	rng := testseed.PCG(t)
	f := newFarm(t, "prequal", 3, nil, rng)
	p := f.policy.(*prequal)
	for i := range 50 {
		p.Learn(f.now, News{Kind: Probed, Server: int32(i % 3), Entry: -1, Report: Report{InFlight: int32(i), Latency: 1}}, rng)
		require.LessOrEqual(t, len(p.pool), 3)
	}
	require.Equal(t, int32(49), p.pool[len(p.pool)-1].inFlight)
}

func TestPrequalProbesThreeServersForEachRequest(t *testing.T) {
	f := newFarm(t, "prequal", 40, nil, testseed.PCG(t))
	for range 500 {
		f.request(nil)
		f.until(f.now + 20e6)
	}
	require.Equal(t, 1500, f.probes)
	require.LessOrEqual(t, len(f.policy.(*prequal).pool), 16)
}

func Example() {
	makePolicy, err := ByName("leastrequest", nil)
	if err != nil {
		panic(err)
	}
	p, rng := makePolicy(), rand.NewPCG(1, 2)
	for server := range int32(3) {
		p.Join(0, server, rng)
	}
	for a, ok := p.Next(0, rng); ok; a, ok = p.Next(0, rng) { // connect
		p.Learn(0, News{Kind: Connected, Server: a.Server, Entry: a.Entry}, rng)
	}
	var requests [3]int
	for range 6 {
		c, _ := p.Pick(0, nil, rng)
		requests[c.Server]++
	}
	fmt.Println(requests, core.NoSlot == Silent.Lowest)
	// Output: [2 2 2] true
}
