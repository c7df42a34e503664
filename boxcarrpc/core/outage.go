package core

import "math/rand/v2"

const (
	// outageGrace is the time for which calls may wait after the last server has failed, so
	// that its fast restart, or the end of another server's quarantine, fails no call.
	outageGrace = 250e6
	// outageQuarantine is the maximum duration of a quarantine while no server is live.
	outageQuarantine = 1e9
)

// An outage is a time in which a client holds no slot and expects none: no server of its set
// is live. It ends when a server joins the set, ends to drain, or answers a lease request.
type outage struct {
	known bool  // the set of servers has been reported
	on    bool  // there is an outage
	over  bool  // its grace is over
	until int64 // end of the grace
}

// SetKnown records that the set of servers has been reported. Before, there is no outage.
func (c *Client) SetKnown() { c.outage.known = true }

// Outage reports whether calls fail that find no free slot: there is an outage, and the set
// is empty or the grace is over. It changes when NextRequest is called.
func (c *Client) Outage() bool { return c.outage.on && c.outage.over && c.held == 0 }

// stepOutage begins or ends an outage. When one begins, servers in quarantine are asked soon:
// one may have recovered while others served.
func (c *Client) stepOutage(now int64, rng *rand.PCG) {
	o := &c.outage
	began := !o.on
	if o.on = o.known && c.held == 0 && c.live == 0; !o.on {
		return
	}
	if began {
		o.until = now + outageGrace
		c.shortenQuarantines(now, rng)
	}
	o.over = c.members == 0 || now >= o.until
}

// shortenQuarantines ends each quarantine, or the wait for a probe after it, within the time
// of the shortest one. An ejected server, which no probe is planned for, gets one: no other
// server is left.
func (l *Ladder) shortenQuarantines(now int64, rng *rand.PCG) {
	for place := range l.members {
		peer := l.memberAt(place)
		p := &l.peers[peer]
		until := now + int64(uniform(rng, quarantineBase))
		switch {
		case p.isolated:
			p.quarantine.until = min(p.quarantine.until, until)
			l.schedule(peer)
		case p.hasAlarm(alarmProbe):
			l.setAlarm(alarmProbe, peer, min(p.due[alarmProbe], until))
		case p.ejected && p.leases() && p.request == noRequest:
			l.setAlarm(alarmProbe, peer, until)
		}
	}
}
