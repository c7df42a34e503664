package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// knottyTable is a client with a table of connected servers that have said that
// they are rested and answer within 10 ms.
func knottyTable(t testing.TB, servers int, rng *rand.PCG) *Knotty {
	makePolicy, err := ByName("knotty", &Options{Servers: min(servers, 100)})
	require.NoError(t, err)
	p := makePolicy().(*Knotty)
	for server := range int32(servers) {
		p.Join(0, server, rng)
	}
	p.connectAll(0, rng)
	for server := range int32(servers) {
		p.hear(0, server, 10, 5)
		p.Learn(0, News{Kind: Probed, Server: server, Entry: -1, Took: 10e6}, rng)
	}
	p.connectAll(0, rng)
	return p
}

// connectAll does what the policy wants done; all servers are up.
func (p *Knotty) connectAll(now int64, rng *rand.PCG) (actions []Action) {
	for a, ok := p.Next(now, rng); ok; a, ok = p.Next(now, rng) {
		actions = append(actions, a)
		if a.Kind == Connect {
			p.Learn(now, News{Kind: Connected, Server: a.Server, Entry: a.Entry}, rng)
		}
	}
	return actions
}

func (p *Knotty) hear(now int64, server, tokens, sessions int32) {
	if entry, known := p.entries[server]; known {
		now = max(now, p.row(entry).said)
	}
	p.Hear(Gossip{At: now + 1, Server: server, Tokens: tokens, Sessions: sessions})
}

func (p *Knotty) servers() map[int32]bool {
	set := map[int32]bool{}
	for _, m := range p.members {
		if m.member {
			set[m.server] = true
		}
	}
	return set
}

// slow has a server's answers take so long.
func (p *Knotty) slow(server int32, took int64) { p.row(p.find(server, -1)).latency = float64(took) }

func TestKnottysTableIsNeverOfAll(t *testing.T) {
	rng := testseed.PCG(t)
	p := knottyTable(t, 1000, rng)
	require.Len(t, p.servers(), 100)
	for now := int64(0); now < 20e9; now += 1e6 {
		p.inFlight = 1000 // hot
		p.row(p.ready[uniform(rng, int64(len(p.ready)))]).latency = 1e9
		p.hear(now, int32(1000+uniform(rng, 1_000_000)), 10, 0)
		p.connectAll(now, rng)
		require.LessOrEqual(t, p.size(), 101, "one is being swapped")
	}
	require.LessOrEqual(t, len(p.members), 101)
	require.Equal(t, 100, len(p.servers()))
}

func TestKnottyKnowsWhenItIsHot(t *testing.T) {
	rng := testseed.PCG(t)
	fresh := func() *Knotty { return knottyTable(t, 10, rng) }
	require.False(t, fresh().hot())
	p := fresh()
	for range 6 {
		_, ok := p.Pick(0, nil, rng)
		require.True(t, ok)
	}
	require.True(t, p.hot(), "its backlog is long")
	p = fresh()
	for server := range int32(10) {
		p.hear(0, server, 2, 5)
	}
	require.True(t, p.hot(), "its servers are out of tokens")
	p = fresh()
	for server := range int32(10) {
		p.slow(server, 150e6)
	}
	require.True(t, p.hot(), "its servers are slow")
	p.slow(3, 50e6)
	require.True(t, p.hot(), "one that is quick does not help")
}

// reviews lets the policy review its table so many times.
func (p *Knotty) reviews(now *int64, n int, rng *rand.PCG) (actions []Action) {
	for range n {
		*now = max(*now, p.review)
		actions = append(actions, p.connectAll(*now, rng)...)
	}
	return actions
}

func TestKnottySwapsAfterSomeReviews(t *testing.T) {
	rng := testseed.PCG(t)
	p := knottyTable(t, 10, rng)
	now := int64(1)
	p.reviews(&now, 1, rng)
	p.inFlight = 100 // hot
	p.slow(4, 300e6)
	p.slow(5, 200e6)
	for range knottyCycles - 1 {
		p.reviews(&now, 1, rng)
		p.hear(now, 77, 10, 0)
		p.connectAll(now, rng)
		require.NotContains(t, p.servers(), int32(77), "too early")
	}
	p.reviews(&now, 1, rng)
	p.hear(now, 78, 3, 0)
	p.hear(now, 79, 10, 60)
	require.Negative(t, p.new, "neither is rested")
	p.inFlight = 0
	p.hear(now, 77, 10, 0)
	require.Negative(t, p.new, "it is not hot")
	p.inFlight = 100
	p.hear(now, 77, 10, 0)
	require.Contains(t, p.servers(), int32(4), "the old one is left when the new one is connected")
	actions := p.connectAll(now, rng)
	require.Contains(t, p.servers(), int32(77))
	require.NotContains(t, p.servers(), int32(4), "the slowest has gone")
	require.Contains(t, p.servers(), int32(5))
	require.Contains(t, actions, Action{Kind: Disconnect, Server: 4, Slot: -1, Entry: 4})
}

// A server that is slow now and then is never replaced, and one that is always slow
// once: the client does not thrash.
func TestKnottyDoesNotThrash(t *testing.T) {
	rng := testseed.PCG(t)
	p := knottyTable(t, 10, rng)
	now, next, swaps := int64(1), int32(100), 0
	for i := range 1000 {
		p.inFlight = 100 // hot all the time
		for server := range int32(9) {
			if p.find(server, -1) < 0 {
				continue
			}
			p.slow(server, 10e6)
			if (i+int(server))%3 > 0 { // two reviews of three
				p.slow(server, 500e6)
			}
		}
		if p.find(9, -1) >= 0 {
			p.slow(9, 500e6)
		}
		p.reviews(&now, 1, rng)
		next++
		p.hear(now, next, 10, 0)
		for _, a := range p.connectAll(now, rng) {
			if a.Kind == Disconnect {
				swaps++
			}
		}
	}
	require.Equal(t, 1, swaps)
	require.NotContains(t, p.servers(), int32(9))
}

func TestKnottyASwapThatFailsChangesNothing(t *testing.T) {
	rng := testseed.PCG(t)
	p := knottyTable(t, 10, rng)
	now := int64(1)
	p.inFlight = 100
	p.slow(4, 300e6)
	p.reviews(&now, 4, rng)
	p.hear(now, 77, 10, 0)
	a, ok := p.Next(now, rng)
	require.True(t, ok)
	require.Equal(t, int32(77), a.Server)
	p.Learn(now, News{Kind: Failed, Server: 77, Entry: a.Entry}, rng)
	require.NotContains(t, p.servers(), int32(77))
	require.Contains(t, p.servers(), int32(4))
	require.Equal(t, 10, p.size())
}

// The score falls with latency and sessions and rises with tokens, each relative to
// the table's largest, so that no unit outweighs another.
func TestKnottysScore(t *testing.T) {
	rng := testseed.PCG(t)
	p := knottyTable(t, 4, rng)
	set := func(server, tokens, sessions int32, latency int64) {
		p.hear(0, server, tokens, sessions)
		p.slow(server, latency)
	}
	set(0, 10, 5, 10e6)
	set(1, 10, 5, 20e6)  // slower
	set(2, 10, 10, 20e6) // and more sessions
	set(3, 0, 10, 20e6)  // and no tokens
	p.rank(1e9)
	require.Equal(t, []int32{0, 1, 2, 3}, p.order)
	require.InDelta(t, 0.5-0.3*0.5-0.2*0.5, p.row(0).score, 1e-9)
	require.InDelta(t, 0-0.3-0.2, p.row(3).score, 1e-9)
	set(0, 0, 10, 40e6)
	p.rank(1e9)
	require.NotEqual(t, int32(0), p.order[3], "not sorted for every word that is heard")
	p.rank(2e9)
	require.Equal(t, int32(0), p.order[3], "order follows what is heard")
}

// A request goes to one of the best K, to different ones as far as there are; with
// more than K under way up to 2K are used, and no other.
func TestKnottysTopK(t *testing.T) {
	rng := testseed.PCG(t)
	p := knottyTable(t, 30, rng)
	p.top = 8
	for server := range int32(30) {
		p.slow(server, int64(server+1)*1e6) // the lower the better
	}
	p.changed = true
	seen := map[int32]int{}
	for range 8 {
		c, _ := p.Pick(0, nil, rng)
		seen[c.Server]++
		require.Less(t, c.Server, int32(8))
	}
	require.Len(t, seen, 8, "unique ones")
	for n := 9; n <= 16; n++ {
		c, _ := p.Pick(0, nil, rng)
		seen[c.Server]++
		require.Less(t, c.Server, int32(n))
	}
	require.Len(t, seen, 16)
	for range 100 {
		c, _ := p.Pick(0, nil, rng)
		require.Less(t, c.Server, int32(16), "2K and no further")
	}
}

func TestKnottyReplacesAServerThatIsGoneForGood(t *testing.T) {
	rng := testseed.PCG(t)
	p := knottyTable(t, 10, rng)
	// One that has left the set.
	p.Leave(0, 3, rng)
	p.hear(0, 50, 10, 0)
	p.connectAll(0, rng)
	require.Contains(t, p.servers(), int32(50))
	// One that never answers again, though it is still in the set.
	now := int64(1)
	p.Learn(now, News{Kind: Lost, Server: 6, Entry: -1}, rng)
	for failures := 1; failures < knottyFailures; failures++ {
		p.hear(now, 51, 10, 0)
		require.NotContains(t, p.servers(), int32(51), "it may come back")
		for failed := false; !failed; {
			now = max(now+1, p.Wake())
			for a, ok := p.Next(now, rng); ok; a, ok = p.Next(now, rng) {
				if a.Kind == Connect {
					require.Equal(t, int32(6), a.Server)
					p.Learn(now, News{Kind: Failed, Server: 6, Entry: a.Entry}, rng)
					failed = true
				}
			}
		}
	}
	p.hear(now, 51, 10, 0)
	p.connectAll(now, rng)
	require.Contains(t, p.servers(), int32(51))
	require.NotContains(t, p.servers(), int32(6))
	require.Equal(t, 10, p.size())
}
