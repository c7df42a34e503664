package policy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// The parameters of knotty: those of its document, and what it leaves open.
const (
	GossipInterval = 1e9 // nanoseconds between two gossips of a server, and two reviews of a table
	// GossipDeliveries is the number of clients that receive a server's gossip in an interval: it
	// goes to 3, and each of them forwards it to 3. A million servers send 12 million messages a
	// second; informing 10,000 clients directly would take 10^10.
	GossipDeliveries = 3 + 3*3
	// Burst is the number of tokens of a server without requests.
	Burst = 10

	knottyCycles   = 3     // consecutive reviews that find a server slow or crowded before it is replaced
	knottySlow     = 100e6 // nanoseconds above which a server is slow
	knottyCrowded  = 64    // sessions above which a server is crowded
	knottyBacklog  = 0.5   // hot: requests per server of the table
	knottyDry      = 0.25  // hot: tokens left, of Burst, on average
	knottyRested   = 0.75  // cold: tokens left, of Burst
	knottyFailures = 6     // consecutive failures after which a server is replaced
	knottyWeight   = 0.25  // of a new latency in the average
	knottyRanks    = 64    // maximum sorts of a table in an interval

	// Weights of a server's score.
	knottyTokens, knottyLatency, knottySessions = 0.5, 0.3, 0.2
)

// knotty is approach 2 of "10,000 frontends, 1,000,000 backends". Servers have token buckets, and
// gossip the number of their tokens and sessions. A client has a table of some servers, computes their
// scores,
//
//	tokens x w1 - latency x w2 - sessions x w3     each divided by the table's largest
//
// and sends each request to a random one of the best K, preferably without a request of
// this client. With n requests in flight it considers n servers, up to 2K.
//
// A client is hot if it has many requests, or its servers have few tokens or are slow. A hot client
// replaces a server that was slow or crowded in n consecutive reviews by one whose gossip shows many
// tokens, one at a time. A server that left or has failed repeatedly is always replaced.
type knotty struct {
	set
	table    int           // maximum of servers
	top      int           // K
	stats    []serverStats // by entry
	order    []int32       // entries with a connection, best first
	changed  bool          // servers have changed; order must be recomputed
	stale    bool          // scores have changed; order must be recomputed after rankAt
	rankAt   int64
	inFlight int
	review   int64
	actions  []Action
	old, new int32 // entries of the current swap, -1 if none
}

// serverStats is a row of the document's table.
type serverStats struct {
	use      uint32 // generation of the entry
	tokens   int32
	sessions int32
	bad      int32   // consecutive reviews that found it slow or crowded
	latency  float64 // nanoseconds
	score    float64
}

func newKnotty(o *Options) *knotty {
	return &knotty{
		set: newSet(o), table: o.Servers, top: max(8, o.Servers/2), // so that pressure reaches the whole table
		stats: make([]serverStats, 0, o.Servers), order: make([]int32, 0, o.Servers),
		old: -1, new: -1,
	}
}

// Join implements Policy. The table starts with the servers that joined first; others are
// known from gossip.
func (p *knotty) Join(_ int64, server int32, _ *rand.PCG) {
	if p.size() < p.table {
		p.row(p.join(server))
	}
}

// size returns the number of servers in the table.
func (p *knotty) size() int { return len(p.members) - len(p.vacant) }

// Leave implements Policy.
func (p *knotty) Leave(_ int64, server int32, _ *rand.PCG) {
	if entry := p.find(server, -1); entry >= 0 {
		p.remove(entry)
	}
}

func (p *knotty) remove(entry int32) {
	if entry == p.old || entry == p.new {
		p.old, p.new = -1, -1
	}
	p.inFlight -= int(p.members[entry].inFlight)
	p.leave(entry)
	p.changed = true
}

// row returns the row of the server of an entry.
func (p *knotty) row(entry int32) *serverStats {
	for int(entry) >= len(p.stats) {
		p.stats = append(p.stats, serverStats{})
	}
	s := &p.stats[entry]
	if use := p.members[entry].use; s.use != use {
		*s = serverStats{use: use, tokens: Burst}
	}
	return s
}

// Pick implements Policy.
func (p *knotty) Pick(now int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	p.rank(now)
	if len(p.order) == 0 {
		return Choice{}, false
	}
	window := min(max(p.top, p.inFlight+1), 2*p.top, len(p.order))
	p.inFlight++
	start := uniform(rng, int64(window))
	best := p.order[start]
	for i := range int64(window) {
		entry := p.order[(start+i)%int64(window)]
		if slices.Contains(tried, p.members[entry].server) {
			continue
		}
		if p.members[entry].inFlight == 0 {
			return p.take(entry)
		}
		if p.members[entry].inFlight < p.members[best].inFlight || slices.Contains(tried, p.members[best].server) {
			best = entry
		}
	}
	return p.take(best)
}

// rank sorts the table by score: at once if servers have changed, with a delay if only scores have.
func (p *knotty) rank(now int64) {
	if !p.changed && (!p.stale || now < p.rankAt) {
		return
	}
	p.changed, p.stale, p.rankAt = false, false, now+GossipInterval/knottyRanks
	p.order = append(p.order[:0], p.ready...)
	tokens, latency, sessions := 1.0, 1.0, 1.0
	for _, entry := range p.order {
		s := p.row(entry)
		tokens, latency = max(tokens, float64(s.tokens)), max(latency, s.latency)
		sessions = max(sessions, float64(s.sessions))
	}
	for _, entry := range p.order {
		s := p.row(entry)
		s.score = knottyTokens*float64(s.tokens)/tokens - knottyLatency*s.latency/latency - knottySessions*float64(s.sessions)/sessions
	}
	slices.SortFunc(p.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.stats[b].score, p.stats[a].score), cmp.Compare(a, b))
	})
}

// Done implements Policy.
func (p *knotty) Done(now int64, c Choice, r Result, rng *rand.PCG) {
	if !p.done(now, c, r, rng) {
		return // its server has left the table
	}
	p.inFlight--
	s := p.row(c.Entry)
	switch r.Outcome {
	case Success:
		s.observe(r.Took)
	case Refused:
		s.tokens = 0
		p.stale = true
	case Broken:
		p.changed = true
	}
}

func (s *serverStats) observe(took int64) {
	if s.latency == 0 {
		s.latency = float64(took)
	}
	s.latency += knottyWeight * (float64(took) - s.latency)
}

// hot reports whether the client needs other servers.
func (p *knotty) hot() bool {
	n := len(p.ready)
	if n == 0 {
		return true
	}
	var tokens, latency float64
	for _, entry := range p.ready {
		s := p.row(entry)
		tokens += float64(s.tokens)
		latency += s.latency
	}
	return float64(p.inFlight) > knottyBacklog*float64(n) ||
		tokens < knottyDry*Burst*float64(n) ||
		latency > knottySlow*float64(n)
}

// Next implements Policy.
func (p *knotty) Next(now int64, rng *rand.PCG) (Action, bool) {
	if now >= p.review {
		if p.review > 0 {
			p.reviewTable()
			p.review = now + GossipInterval
		} else {
			p.review = now + 1 + uniform(rng, GossipInterval)
		}
	}
	if n := len(p.actions); n > 0 {
		a := p.actions[n-1]
		p.actions = p.actions[:n-1]
		return a, true
	}
	return p.next(now)
}

// reviewTable counts the consecutive reviews in which each server was slow or crowded.
func (p *knotty) reviewTable() {
	p.stale = true
	for _, entry := range p.ready {
		s := p.row(entry)
		if s.latency > knottySlow || s.sessions > knottyCrowded {
			s.bad++
		} else {
			s.bad = 0
		}
	}
}

// Wake implements Policy.
func (p *knotty) Wake() int64 { return min(p.wake, p.review) }

// Learn implements Policy.
func (p *knotty) Learn(now int64, n News, rng *rand.PCG) {
	if n.Kind == Failed && n.Entry >= 0 && p.find(n.Server, n.Entry) == n.Entry && p.members[n.Entry].place >= 0 {
		return // a probe without an answer does not mean a broken connection
	}
	entry := p.learn(now, n, rng)
	switch {
	case entry < 0 && n.Kind == Gossip:
		p.consider(n)
	case entry < 0:
	case n.Kind == Gossip:
		s := p.row(entry)
		s.tokens, s.sessions = n.Report.Tokens, n.Report.Sessions
		p.stale = true
		if p.members[entry].place >= 0 {
			p.actions = append(p.actions, Action{Kind: Probe, Server: n.Server, Entry: entry})
		}
	case n.Kind == Probed:
		p.row(entry).observe(n.Took + n.Report.Latency)
		p.stale = true
	default:
		p.changed = true
		p.swapped(entry, n.Kind == Connected)
	}
}

// consider decides about a server that is not in the table.
func (p *knotty) consider(n News) {
	r := n.Report
	rested := float64(r.Tokens) >= knottyRested*Burst && r.Sessions <= knottyCrowded/2
	switch {
	case !rested || p.new >= 0:
		return
	case p.size() < p.table:
		p.admit(n)
		return
	}
	// Replace the worst server; one that fails repeatedly first.
	worst := int32(-1)
	hot := p.hot()
	for i := range p.members {
		m, s := &p.members[i], p.row(int32(i))
		switch {
		case !m.member:
		case m.place < 0 && m.level >= knottyFailures:
			s.latency, s.bad = math.MaxFloat64, knottyCycles
			fallthrough
		case hot && s.bad >= knottyCycles:
			if worst < 0 || s.latency > p.row(worst).latency {
				worst = int32(i)
			}
		}
	}
	if worst >= 0 {
		p.old = worst
		p.new = p.admit(n)
	}
}

// admit adds the server of the news to the table.
func (p *knotty) admit(n News) int32 {
	entry := p.join(n.Server)
	s := p.row(entry)
	s.tokens, s.sessions = n.Report.Tokens, n.Report.Sessions
	return entry
}

// swapped ends a swap whose new server is connected, or could not be.
func (p *knotty) swapped(entry int32, connected bool) {
	if entry != p.new {
		return
	}
	old := p.old
	p.old, p.new = -1, -1
	switch {
	case !connected:
		p.remove(entry)
	case p.members[old].place >= 0:
		p.actions = append(p.actions, Action{Kind: Disconnect, Server: p.members[old].server, Slot: -1, Entry: old})
		fallthrough
	default:
		p.remove(old)
	}
}

// Servers appends the servers of the table.
func (p *knotty) Servers(dst []int32) []int32 {
	for i := range p.members {
		if m := &p.members[i]; m.member {
			dst = append(dst, m.server)
		}
	}
	return dst
}
