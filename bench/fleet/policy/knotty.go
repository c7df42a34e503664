package policy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// The parameters of knotty: those of its document, and what it leaves open.
const (
	// GossipInterval is the time between two gossips of a server and between two reviews of a table, in
	// nanoseconds.
	GossipInterval = 1_000_000_000
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
	knottyRankGap  = 16e6  // minimum nanoseconds between two sorts of a table for scores

	// Weights of a server's score.
	knottyTokens, knottyLatency, knottySessions = 0.5, 0.3, 0.2
)

// Knotty is approach 2 of "10,000 frontends, 1,000,000 backends". Servers have token buckets, and
// gossip the number of their tokens and sessions. A client probes the latency of a server when it hears
// from it. It has a table of some servers, computes their scores,
//
//	tokens x w1 - latency x w2 - sessions x w3     each divided by the table's largest
//
// and sends each request to a random one of the best K, preferably without a request of
// this client. With n requests in flight it considers n servers, up to 2K.
//
// A client is hot if it has many requests, or its servers have few tokens or are slow. A hot client
// replaces a server that was slow or crowded in n consecutive reviews by one whose gossip shows many
// tokens, one at a time. A server that left or has failed repeatedly is always replaced.
type Knotty struct {
	set
	entries  map[int32]int32 // by server
	table    int             // maximum of servers
	top      int             // K
	stats    []serverStats   // by entry
	order    []int32         // entries with a connection, best first
	changed  bool            // servers have changed; order must be recomputed
	stale    bool            // scores have changed; order must be recomputed after rankAt
	rankAt   int64
	inFlight int
	review   int64
	actions  []Action
	old, new int32 // entries of the current swap, -1 if none
	// replaceable means that a server of the table may be due for replacement.
	replaceable bool
}

// serverStats is a row of the document's table.
type serverStats struct {
	use      uint32 // generation of the entry
	tokens   int32
	sessions int32
	said     int64   // time of the last gossip that was heard, 0 for none
	bad      int32   // consecutive reviews that found it slow or crowded
	latency  float64 // nanoseconds
	score    float64
}

func newKnotty(o *Options) *Knotty {
	return &Knotty{
		set: newSet(o), entries: make(map[int32]int32, o.Servers), table: o.Servers, top: max(8, o.Servers/2), // so that pressure reaches the whole table
		stats: make([]serverStats, 0, o.Servers), order: make([]int32, 0, o.Servers),
		old: -1, new: -1,
	}
}

// Join implements Policy. The table starts with the servers that joined first; others are
// known from gossip.
func (p *Knotty) Join(_ int64, server int32, _ *rand.PCG) {
	if p.size() < p.table {
		p.add(server)
	}
}

func (p *Knotty) add(server int32) (entry int32) {
	entry = p.join(server)
	p.entries[server] = entry
	p.row(entry)
	return entry
}

// size returns the number of servers in the table.
func (p *Knotty) size() int { return len(p.members) - len(p.vacant) }

// Leave implements Policy.
func (p *Knotty) Leave(_ int64, server int32, _ *rand.PCG) {
	if entry, known := p.entries[server]; known {
		p.remove(entry)
	}
}

func (p *Knotty) remove(entry int32) {
	if entry == p.old || entry == p.new {
		p.old, p.new = -1, -1
	}
	p.inFlight -= int(p.members[entry].inFlight)
	delete(p.entries, p.members[entry].server)
	p.leave(entry)
	p.changed = true
}

// row returns the row of the server of an entry.
func (p *Knotty) row(entry int32) *serverStats {
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
func (p *Knotty) Pick(now int64, tried []int32, rng *rand.PCG) (Choice, bool) {
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
func (p *Knotty) rank(now int64) {
	if !p.changed && (!p.stale || now < p.rankAt) {
		return
	}
	p.changed, p.stale, p.rankAt = false, false, now+knottyRankGap
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
func (p *Knotty) Done(now int64, c Choice, r Result, rng *rand.PCG) {
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
func (p *Knotty) hot() bool {
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
func (p *Knotty) Next(now int64, rng *rand.PCG) (Action, bool) {
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
func (p *Knotty) reviewTable() {
	p.stale, p.replaceable = true, false
	for entry := range p.members {
		m := &p.members[entry]
		if m.place < 0 {
			p.replaceable = p.replaceable || m.member && m.level >= knottyFailures
			continue
		}
		s := p.row(int32(entry))
		if s.latency > knottySlow || s.sessions > knottyCrowded {
			s.bad++
			p.replaceable = p.replaceable || s.bad >= knottyCycles
		} else {
			s.bad = 0
		}
	}
}

// Wake implements Policy.
func (p *Knotty) Wake() int64 { return min(p.wake, p.review) }

// Learn implements Policy.
func (p *Knotty) Learn(now int64, n News, rng *rand.PCG) {
	entry, known := p.entries[n.Server]
	if !known || n.Kind == Failed && n.Entry == entry && p.members[entry].place >= 0 {
		return // a probe without an answer does not mean a broken connection
	}
	n.Entry = entry
	p.learn(now, n, rng)
	switch n.Kind {
	case Probed:
		p.row(entry).observe(n.Took + n.Report.Latency)
		p.stale = true
	default:
		p.changed = true
		p.replaceable = p.replaceable || p.members[entry].level >= knottyFailures
		p.swapped(entry, n.Kind == Connected)
	}
}

// A Gossip is a server's message: its state at a time.
type Gossip struct {
	At       int64 // nanoseconds, by the clock of the server
	Server   int32
	Tokens   int32 // requests that it would admit at once
	Sessions int32 // connections
}

// Hear passes a gossip to the client and reports whether it changed its table, so that Next has
// actions.
func (p *Knotty) Hear(g Gossip) bool {
	entry, known := p.entries[g.Server]
	if !known {
		return p.consider(g)
	}
	s := p.row(entry)
	if s.said >= g.At && s.said > 0 {
		return false // heard by another way
	}
	s.said, s.tokens, s.sessions = g.At, g.Tokens, g.Sessions
	p.stale = true
	if p.members[entry].place >= 0 {
		p.actions = append(p.actions, Action{Kind: Probe, Server: g.Server, Entry: entry})
	}
	return true
}

// Said appends the times of the last gossip heard from each server of the table, 0 for none.
func (p *Knotty) Said(dst []int64) []int64 {
	for i := range p.members {
		if p.members[i].member {
			dst = append(dst, p.row(int32(i)).said)
		}
	}
	return dst
}

// consider decides about a server that is not in the table, and reports whether it was added.
func (p *Knotty) consider(g Gossip) bool {
	rested := float64(g.Tokens) >= knottyRested*Burst && g.Sessions <= knottyCrowded/2
	switch {
	case !rested || p.new >= 0:
		return false
	case p.size() < p.table:
		p.admit(g)
		return true
	case !p.replaceable:
		return false
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
	if worst < 0 {
		return false
	}
	p.old = worst
	p.new = p.admit(g)
	return true
}

// admit adds the server of a gossip to the table.
func (p *Knotty) admit(g Gossip) int32 {
	entry := p.add(g.Server)
	s := p.row(entry)
	s.said, s.tokens, s.sessions = g.At, g.Tokens, g.Sessions
	return entry
}

// swapped ends a swap whose new server is connected, or could not be.
func (p *Knotty) swapped(entry int32, connected bool) {
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
