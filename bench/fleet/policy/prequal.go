package policy

import (
	"math/rand/v2"
	"slices"
)

const (
	prequalProbes  = 3    // servers probed for each request
	prequalPool    = 16   // answers kept
	prequalMaxAge  = 1e9  // nanoseconds for which an answer is kept
	prequalHot     = 0.84 // quantile of requests in flight above which a server is crowded
	prequalRemove  = 1    // answers dropped for each request, alternately the oldest and the worst
	prequalLeast   = 2    // with fewer answers a server is chosen at random
	prequalSlack   = 1    // delta of the formula of reuse
	prequalRecent  = 64   // answers whose quantile is taken
	prequalReusing = 64   // maximum of uses of an answer
)

// prequal keeps a pool of answers to asynchronous probes. Of the servers with an answer it
// uses the one with the lowest latency that is not crowded, or the one with the fewest
// requests in flight if all are crowded.
//
// Wydrowski, Kleinberg, Rumble and Archer, "Load is not what you should balance:
// Introducing Prequal", NSDI 2024, https://arxiv.org/abs/2312.10172. As there, an
// answer expires, has a maximum of uses, and counts the requests that used it; the worst answers are
// removed as well as the oldest, because good ones are used up. Error aversion is not implemented.
type prequal struct {
	set
	pool     []prequalAnswer // oldest first
	owed     int             // probes to send
	worst    bool            // the worst is removed next, not the oldest
	recent   [prequalRecent]int32
	received int
	sorted   [prequalRecent]int32
	hot      int32         // requests in flight above which a server is crowded
	times    []prequalTime // by entry
}

// prequalTime is the duration of the last request to a server, for servers without a latency in their
// reports.
type prequalTime struct {
	took int64
	use  uint32 // generation of the entry
}

type prequalAnswer struct {
	at       int64
	latency  int64
	entry    int32
	use      uint32
	inFlight int32
	left     int32 // uses
}

func newPrequal(o *Options) *prequal {
	return &prequal{set: newSet(o), pool: make([]prequalAnswer, 0, prequalPool)}
}

// Pick implements Policy.
func (p *prequal) Pick(now int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	p.owed = min(p.owed+prequalProbes, 2*prequalPool)
	p.forget(now)
	best := -1
	for i := range p.pool {
		a := &p.pool[i]
		if slices.Contains(tried, p.members[a.entry].server) {
			continue
		}
		if best < 0 || p.better(a, &p.pool[best]) {
			best = i
		}
	}
	if best < 0 || len(p.pool) < prequalLeast {
		entry, ok := p.any(tried, rng)
		if !ok {
			return Choice{}, false
		}
		return p.take(entry)
	}
	a := &p.pool[best]
	entry := a.entry
	a.inFlight++
	if a.left--; a.left <= 0 {
		p.pool = slices.Delete(p.pool, best, best+1)
	}
	for range prequalRemove {
		p.remove()
	}
	return p.take(entry)
}

// better is the hot-cold lexicographic rule.
func (p *prequal) better(a, b *prequalAnswer) bool {
	hotA, hotB := a.inFlight > p.hot, b.inFlight > p.hot
	switch {
	case hotA != hotB:
		return hotB
	case hotA:
		return a.inFlight < b.inFlight
	}
	return a.latency < b.latency
}

// forget drops answers that are old, and those of servers that are gone.
func (p *prequal) forget(now int64) {
	p.pool = slices.DeleteFunc(p.pool, func(a prequalAnswer) bool {
		m := &p.members[a.entry]
		return now-a.at > prequalMaxAge || m.use != a.use || m.place < 0
	})
}

// remove drops an answer, so that bad answers do not accumulate in the pool while good
// ones are used.
func (p *prequal) remove() {
	p.worst = !p.worst
	if len(p.pool) == 0 {
		return
	}
	drop := 0
	if p.worst {
		for i := range p.pool {
			if p.better(&p.pool[drop], &p.pool[i]) {
				drop = i
			}
		}
	}
	p.pool = slices.Delete(p.pool, drop, drop+1)
}

// Next implements Policy.
func (p *prequal) Next(now int64, rng *rand.PCG) (Action, bool) {
	if a, ok := p.next(now); ok {
		return a, true
	}
	if p.owed == 0 || len(p.ready) == 0 {
		return Action{}, false
	}
	p.owed--
	entry := p.ready[uniform(rng, int64(len(p.ready)))]
	return Action{Kind: Probe, Server: p.members[entry].server, Entry: entry}, true
}

// Done implements Policy.
func (p *prequal) Done(now int64, c Choice, r Result, rng *rand.PCG) {
	if p.done(now, c, r, rng) && r.Outcome == Success {
		p.time(c.Entry).took = r.Took
	}
}

// time returns the state of the server that has the entry.
func (p *prequal) time(entry int32) *prequalTime {
	for int(entry) >= len(p.times) {
		p.times = append(p.times, prequalTime{})
	}
	t := &p.times[entry]
	if use := p.members[entry].use; t.use != use {
		*t = prequalTime{use: use}
	}
	return t
}

// Learn implements Policy.
func (p *prequal) Learn(now int64, n News, rng *rand.PCG) {
	if n.Kind == Failed && n.Entry >= 0 && p.find(n.Server, n.Entry) == n.Entry && p.members[n.Entry].place >= 0 {
		return // a probe without an answer does not mean a broken connection
	}
	entry := p.learn(now, n, rng)
	if n.Kind != Probed || entry < 0 {
		return
	}
	p.count(n.Report.InFlight)
	latency := n.Report.Latency
	if latency == 0 {
		latency = p.time(entry).took
	}
	// Older answers of this server are outdated.
	p.pool = slices.DeleteFunc(p.pool, func(a prequalAnswer) bool { return a.entry == entry })
	if len(p.pool) == prequalPool {
		p.pool = slices.Delete(p.pool, 0, 1)
	}
	p.pool = append(p.pool, prequalAnswer{
		at: now, latency: latency, entry: entry, use: p.members[entry].use,
		inFlight: n.Report.InFlight, left: p.uses(rng),
	})
}

// count updates the quantile of requests in flight.
func (p *prequal) count(inFlight int32) {
	p.recent[p.received%prequalRecent] = inFlight
	p.received++
	n := min(p.received, prequalRecent)
	sorted := p.sorted[:n]
	copy(sorted, p.recent[:n])
	slices.Sort(sorted)
	p.hot = sorted[min(int(prequalHot*float64(n)), n-1)]
}

// uses returns the maximum uses of an answer, so that there is one for each request: b_reuse of the
// paper. A fraction is the probability of one more.
func (p *prequal) uses(rng *rand.PCG) int32 {
	share := float64(prequalPool) / float64(max(len(p.members), prequalPool))
	gain := (1-share)*float64(prequalProbes) - prequalRemove
	if gain <= 0 {
		return prequalReusing
	}
	uses := min(max(1, (1+prequalSlack)/gain), prequalReusing)
	whole := int32(uses)
	if rand.New(rng).Float64() < uses-float64(whole) {
		whole++
	}
	return whole
}
