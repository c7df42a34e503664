package policy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// KnottyOptions are knotty's.
type KnottyOptions struct {
	// Table is how many servers a client has, at most. The default is 100.
	Table int
	// Top is K: a request goes to one of the best K, under pressure of the best
	// 2K. The default is half of Table, so that pressure reaches all of it.
	Top int
	// Interval is z, how often a server gossips and a client reviews its table,
	// in nanoseconds. The default is 1 s.
	Interval int64
	// Fanout is how many clients a server's gossip is sent to, and each of them
	// sends it on to, Hops times. The defaults are 3 and 1; negative Hops means
	// none.
	Fanout, Hops int
	// Cycles is n: so many reviews in a row must find a server slow or crowded
	// before it may be replaced, 2 to 5. The default is 3.
	Cycles int
	// SlowAbove (nanoseconds) and CrowdedAbove (sessions) are the limits above which a
	// server is slow or crowded. The defaults are 100 ms and 64.
	SlowAbove    int64
	CrowdedAbove int32
	// Burst is C, the tokens of a server that rests. The default is 10.
	Burst int32
	// Tokens, Latency and Sessions weigh a server's score and sum up to 1. The
	// defaults are 0.5, 0.3 and 0.2.
	Tokens, Latency, Sessions float64
}

func (o *KnottyOptions) fill() {
	o.Table = orDefault(o.Table, 100)
	o.Top = orDefault(o.Top, max(1, o.Table/2))
	o.Interval = orDefault(o.Interval, 1e9)
	o.Fanout = orDefault(o.Fanout, 3)
	o.Hops = max(orDefault(o.Hops, 1), 0)
	o.Cycles = orDefault(o.Cycles, 3)
	o.SlowAbove = orDefault(o.SlowAbove, 100e6)
	o.CrowdedAbove = orDefault(o.CrowdedAbove, 64)
	o.Burst = orDefault(o.Burst, 10)
	if o.Tokens+o.Latency+o.Sessions == 0 {
		o.Tokens, o.Latency, o.Sessions = 0.5, 0.3, 0.2
	}
}

// Deliveries is how many clients get a server's gossip each Interval, if none
// gets it twice: Fanout at first, and Fanout times as many with each hop. With 3
// and 1 they are 12; a million servers send 12 million messages a second, where
// telling 10,000 clients everything would take 10^10.
func (o *KnottyOptions) Deliveries() int {
	sum, wave := 0, 1
	for range o.Hops + 1 {
		wave *= o.Fanout
		sum += wave
	}
	return sum
}

// What the document leaves open; hot and cold are shares.
const (
	knottyBacklog  = 0.5  // hot: requests per server of the table
	knottyDry      = 0.25 // hot: tokens left, of Burst, on average
	knottyRested   = 0.75 // cold: tokens left, of Burst
	knottyFailures = 6    // failures in a row after which a server is gone for good
	knottyWeight   = 0.25 // of a new latency in the average
	knottyRanks    = 64   // times in an Interval that the table is sorted, at most
)

// knotty is approach 2 of "10,000 frontends, 1,000,000 backends". Servers guard
// themselves with token buckets, and gossip how many tokens and sessions they
// have. A client has a table of some servers, scores them,
//
//	tokens x w1 - latency x w2 - sessions x w3     each divided by the table's largest
//
// and sends each request to a random one of the best K, preferably without a request of
// this client. Requests with the same key go to the same server. With n requests in
// flight it considers n servers, up to 2K.
//
// A client is hot if its backlog is long, or its servers are dry, or slow. A hot
// client that hears of a server that is rested, and has one that was slow or
// crowded in n reviews, swaps the two, one at a time. A server that left, or is
// gone for good, makes room without that.
type knotty struct {
	set
	options  KnottyOptions
	stats    []serverStats // by entry
	order    []int32       // entries with a connection, best first
	changed  bool          // servers have changed; order must be recomputed
	stale    bool          // scores have changed; order must be recomputed after rankAt
	rankAt   int64
	inFlight int
	review   int64
	actions  []Action
	old, new int32 // entries of the swap under way, -1 if none
}

// serverStats is a row of the document's table.
type serverStats struct {
	use      uint32 // whose row this is
	tokens   int32
	sessions int32
	bad      int32   // reviews in a row that found it slow or crowded
	latency  float64 // nanoseconds
	score    float64
}

func newKnotty(o *Options) *knotty {
	return &knotty{
		set: newSet(o), options: o.Knotty,
		stats: make([]serverStats, 0, o.Servers), order: make([]int32, 0, o.Servers),
		old: -1, new: -1,
	}
}

// Join implements Policy. The table starts with the servers that joined first; others are
// known from gossip.
func (p *knotty) Join(_ int64, server int32, _ *rand.PCG) {
	if p.size() < p.options.Table {
		p.row(p.join(server))
	}
}

// size is how many servers the table has.
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

// row is the row of the server that has the entry now.
func (p *knotty) row(entry int32) *serverStats {
	for int(entry) >= len(p.stats) {
		p.stats = append(p.stats, serverStats{})
	}
	s := &p.stats[entry]
	if use := p.members[entry].use; s.use != use {
		*s = serverStats{use: use, tokens: p.options.Burst}
	}
	return s
}

// Pick implements Policy.
func (p *knotty) Pick(now int64, q Query, rng *rand.PCG) (Choice, bool) {
	p.rank(now)
	if len(p.order) == 0 {
		return Choice{}, false
	}
	window := min(max(p.options.Top, p.inFlight+1), 2*p.options.Top, len(p.order))
	p.inFlight++
	if q.Key != 0 {
		return p.take(p.affine(q, p.order[:window]))
	}
	start := uniform(rng, int64(window))
	best := p.order[start]
	for i := range int64(window) {
		entry := p.order[(start+i)%int64(window)]
		if slices.Contains(q.Tried, p.members[entry].server) {
			continue
		}
		if p.members[entry].inFlight == 0 {
			return p.take(entry)
		}
		if p.members[entry].inFlight < p.members[best].inFlight || slices.Contains(q.Tried, p.members[best].server) {
			best = entry
		}
	}
	return p.take(best)
}

// affine returns the server of a key: the one with the highest hash of both, so
// that a key moves only when its server leaves the window.
func (p *knotty) affine(q Query, window []int32) (best int32) {
	best = window[0]
	var highest uint64
	for _, entry := range window {
		server := p.members[entry].server
		if hash := mix(q.Key ^ mix(uint64(server))); hash >= highest && !slices.Contains(q.Tried, server) {
			best, highest = entry, hash
		}
	}
	return best
}

// mix is SplitMix64's finaliser. Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// rank sorts the table by score if something has changed: at once if servers have,
// after a little while if only scores have.
func (p *knotty) rank(now int64) {
	if !p.changed && (!p.stale || now < p.rankAt) {
		return
	}
	p.changed, p.stale, p.rankAt = false, false, now+p.options.Interval/knottyRanks
	p.order = append(p.order[:0], p.ready...)
	tokens, latency, sessions := 1.0, 1.0, 1.0
	for _, entry := range p.order {
		s := p.row(entry)
		tokens, latency = max(tokens, float64(s.tokens)), max(latency, s.latency)
		sessions = max(sessions, float64(s.sessions))
	}
	o := &p.options
	for _, entry := range p.order {
		s := p.row(entry)
		s.score = o.Tokens*float64(s.tokens)/tokens - o.Latency*s.latency/latency - o.Sessions*float64(s.sessions)/sessions
	}
	slices.SortFunc(p.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.stats[b].score, p.stats[a].score), cmp.Compare(a, b))
	})
}

// Done implements Policy.
func (p *knotty) Done(now int64, c Choice, r Result, rng *rand.PCG) {
	if !p.done(now, c, r, rng) {
		return // its server has left with its requests
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

// hot reports whether the client needs other servers than it has.
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
		tokens < knottyDry*float64(p.options.Burst)*float64(n) ||
		latency > float64(p.options.SlowAbove)*float64(n)
}

// Next implements Policy.
func (p *knotty) Next(now int64, rng *rand.PCG) (Action, bool) {
	if now >= p.review {
		if p.review > 0 {
			p.reviewTable()
			p.review = now + p.options.Interval
		} else {
			p.review = now + 1 + uniform(rng, p.options.Interval)
		}
	}
	if n := len(p.actions); n > 0 {
		a := p.actions[n-1]
		p.actions = p.actions[:n-1]
		return a, true
	}
	return p.next(now)
}

// reviewTable counts for how many reviews each server has been slow or crowded.
func (p *knotty) reviewTable() {
	p.stale = true
	for _, entry := range p.ready {
		s := p.row(entry)
		if s.latency > float64(p.options.SlowAbove) || s.sessions > p.options.CrowdedAbove {
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
	if n.Kind == Gossip && n.Report.Hops > 0 {
		relayed := n.Report
		relayed.Hops--
		p.actions = append(p.actions, Action{Kind: Relay, Server: n.Server, Report: relayed, Fanout: p.options.Fanout})
	}
	if n.Kind == Failed && n.Entry >= 0 && p.find(n.Server, n.Entry) == n.Entry && p.members[n.Entry].place >= 0 {
		return // a probe that was not answered says nothing of the connection
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
	rested := float64(r.Tokens) >= knottyRested*float64(p.options.Burst) && r.Sessions <= p.options.CrowdedAbove/2
	switch {
	case !rested || p.new >= 0:
		return
	case p.size() < p.options.Table:
		p.admit(n)
		return
	}
	// The worst of those that may be replaced; one that is gone before all.
	worst := int32(-1)
	hot := p.hot()
	for i := range p.members {
		m, s := &p.members[i], p.row(int32(i))
		switch {
		case !m.member:
		case m.place < 0 && m.level >= knottyFailures:
			s.latency, s.bad = math.MaxFloat64, int32(p.options.Cycles)
			fallthrough
		case hot && s.bad >= int32(p.options.Cycles):
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

// Servers appends the servers of the table, whose gossip the client uses.
func (p *knotty) Servers(dst []int32) []int32 {
	for i := range p.members {
		if m := &p.members[i]; m.member {
			dst = append(dst, m.server)
		}
	}
	return dst
}
