package policy

import (
	"math/rand/v2"
	"slices"
)

// lifetime is how long a connection is used, in nanoseconds.
const lifetime = 300e9

// viamedia is approach 1.5 of "10,000 frontends, 1,000,000 backends". A request uses an
// idle pooled connection, or a new one to a random server of the fleet. A connection has
// one request at a time and lives for some minutes. Servers have token buckets that are
// invisible to the client. A busy client thus has more connections than an idle one.
//
// The set is all numbers up to the highest that joined, except those that left, so that a
// million servers need no memory in a client.
type viamedia struct {
	limit  int
	conns  []pooled
	idle   []int32 // entries
	vacant []int32
	extent int32
	gone   []int32 // servers below extent that left
	wake   int64   // no idle connection ends before
}

type pooled struct {
	server  int32
	place   int32 // in idle, -1 if it has a request
	use     uint32
	open    bool
	expires int64
}

func newViamedia(o *Options) *viamedia {
	return &viamedia{limit: o.Size, wake: never}
}

// Join implements Policy.
func (p *viamedia) Join(_ int64, server int32, _ *rand.PCG) {
	p.extent = max(p.extent, server+1)
	p.gone = slices.DeleteFunc(p.gone, func(s int32) bool { return s == server })
}

// Leave implements Policy.
func (p *viamedia) Leave(_ int64, server int32, _ *rand.PCG) {
	if server < p.extent && !slices.Contains(p.gone, server) {
		p.gone = append(p.gone, server)
	}
	p.expire(server)
}

// expire lets the connections to a server end.
func (p *viamedia) expire(server int32) {
	for i := range p.conns {
		if c := &p.conns[i]; c.open && c.server == server {
			c.expires = 0
			p.wake = 0
		}
	}
}

// Pick implements Policy.
func (p *viamedia) Pick(now int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	for n := int64(len(p.idle)); n > 0; n-- {
		// A random idle one: the one used last would get all requests.
		place := uniform(rng, n)
		entry := p.idle[place]
		c := &p.conns[entry]
		if now < c.expires && !slices.Contains(tried, c.server) {
			p.unidle(entry)
			return Choice{Server: c.server, Entry: entry, use: c.use}, true
		}
		p.swapIdle(place, n-1) // do not draw it again
	}
	if len(p.conns)-len(p.vacant) >= p.limit {
		return Choice{}, false
	}
	server, ok := p.draw(tried, rng)
	if !ok {
		return Choice{}, false
	}
	entry := p.enter()
	c := &p.conns[entry]
	*c = pooled{server: server, place: -1, open: true, use: c.use + 1, expires: now + lifetime}
	return Choice{Server: server, Entry: entry, Fresh: true, use: c.use}, true
}

// enter returns a free entry.
func (p *viamedia) enter() int32 {
	if n := len(p.vacant); n > 0 {
		entry := p.vacant[n-1]
		p.vacant = p.vacant[:n-1]
		return entry
	}
	p.conns = append(p.conns, pooled{})
	return int32(len(p.conns) - 1)
}

// draw returns a random server of the set.
func (p *viamedia) draw(tried []int32, rng *rand.PCG) (server int32, ok bool) {
	if int(p.extent) <= len(p.gone) {
		return -1, false
	}
	for {
		server = int32(uniform(rng, int64(p.extent)))
		if slices.Contains(p.gone, server) {
			continue
		}
		if !slices.Contains(tried, server) || len(tried) >= int(p.extent)-len(p.gone) {
			return server, true
		}
	}
}

func (p *viamedia) swapIdle(a, b int64) {
	p.idle[a], p.idle[b] = p.idle[b], p.idle[a]
	p.conns[p.idle[a]].place = int32(a)
	p.conns[p.idle[b]].place = int32(b)
}

func (p *viamedia) unidle(entry int32) {
	last := int64(len(p.idle) - 1)
	p.swapIdle(int64(p.conns[entry].place), last)
	p.idle = p.idle[:last]
	p.conns[entry].place = -1
}

// Done implements Policy.
func (p *viamedia) Done(_ int64, c Choice, r Result, _ *rand.PCG) {
	conn := &p.conns[c.Entry]
	switch {
	case conn.use != c.use || !conn.open:
		return
	case r.Outcome == Broken:
		p.drop(c.Entry)
		return
	}
	conn.place = int32(len(p.idle))
	p.idle = append(p.idle, c.Entry)
	p.wake = min(p.wake, conn.expires)
}

func (p *viamedia) drop(entry int32) {
	c := &p.conns[entry]
	if c.place >= 0 {
		p.unidle(entry)
	}
	c.open = false
	p.vacant = append(p.vacant, entry)
}

// Next implements Policy.
func (p *viamedia) Next(now int64, _ *rand.PCG) (Action, bool) {
	if now < p.wake {
		return Action{}, false
	}
	p.wake = never
	for _, entry := range p.idle {
		c := &p.conns[entry]
		if now < c.expires {
			p.wake = min(p.wake, c.expires)
			continue
		}
		p.drop(entry)
		p.wake = now // there may be more
		return Action{Kind: Disconnect, Server: c.server, Slot: -1, Entry: entry}, true
	}
	return Action{}, false
}

// Wake implements Policy.
func (p *viamedia) Wake() int64 { return p.wake }

// Learn implements Policy.
func (p *viamedia) Learn(_ int64, n News, _ *rand.PCG) {
	switch n.Kind {
	case Lost:
		for i := range p.conns {
			if c := &p.conns[i]; c.open && c.server == n.Server {
				p.drop(int32(i))
			}
		}
	case Draining:
		p.expire(n.Server)
	}
}
