package core

import "math/rand/v2"

// A Client is the slots of one client: its [Ladder], the [LeaseSeeker] that looks
// for lower slots, and the steps that concern both. The pool of package boxcarrpc
// and the fleet simulator drive it.
type Client struct {
	Ladder
	seeker LeaseSeeker
	outage outage
}

// NewClient makes a client for size slots that holds none yet. See [NewLadder] for
// slots and peers.
func NewClient(size int, slots []Slot, peers []Peer) Client {
	return Client{Ladder: NewLadder(size, slots, peers)}
}

// Acquire takes the first free slot for a request. After attempts on the servers in
// tried it takes the first free slot of another server. It is not ok if no slot is
// free, or if a slot of another server may come: one is busy, or there are live
// servers besides those in tried. The caller waits, or calls Acquire with nil.
func (c *Client) Acquire(now int64, tried []int32, rng *rand.PCG) (entry int32, ok bool) {
	if len(tried) > 0 {
		entry, ok, other := c.AcquireOther(now, tried, rng)
		if ok || other || c.Live() > len(tried) {
			return entry, ok
		}
	}
	return c.Ladder.Acquire(now, rng)
}

// A Response is the end of a request.
type Response struct {
	Outcome Outcome
	Load    int32 // other requests in flight on the server; valid with Success
	Lowest  int32 // the server's lowest free slot, NoSlot if it has none or is unknown
}

// Release ends the request of a busy slot. If gone, the slot has left the ladder and
// the caller gives it back to its server. If due, which includes gone, the caller calls
// Trim, NextRequest and Wake.
func (c *Client) Release(now int64, entry int32, r Response, rng *rand.PCG) (gone, due bool) {
	peer := c.slots[entry].peer
	if c.Ladder.Release(now, entry, r.Outcome, rng) {
		return true, true
	}
	if r.Outcome == Success {
		c.ReportLoad(now, entry, r.Load)
	}
	due = c.seeker.Used(now, rng)
	if r.Lowest != NoSlot && c.seeker.Hint(now, &c.Ladder, peer, r.Lowest, rng) {
		due = true
	}
	if !due && c.held > c.size {
		_, due = c.Surplus()
	}
	return false, due
}

// Trim retires the slots that [Ladder.Surplus] returns. It returns one that has left
// the ladder, for the caller to give back, and is called until it is not ok.
func (c *Client) Trim() (entry int32, ok bool) {
	for {
		if entry, ok = c.Surplus(); !ok || c.Retire(entry) {
			return entry, ok
		}
	}
}

// NextRequest is [LeaseSeeker.NextRequest]. The caller ends the lease request with
// Grant or Done.
func (c *Client) NextRequest(now int64, rng *rand.PCG) (peer, below int32, ok bool) {
	c.stepOutage(now, rng)
	return c.seeker.NextRequest(now, &c.Ladder, rng)
}

// Grant ends a lease request to which the server gave a slot, and offers the slot to
// the ladder: see [Ladder.Grant].
func (c *Client) Grant(now int64, peer, number int32, rng *rand.PCG) (entry, victim int32, gone, ok bool) {
	entry, victim, gone, ok = c.Ladder.Grant(peer, number)
	result := Declined
	if ok {
		result = Granted
	}
	c.Done(now, peer, result, rng)
	return entry, victim, gone, ok
}

// Done ends a lease request: see [LeaseSeeker.Done].
func (c *Client) Done(now int64, peer int32, result LeaseResult, rng *rand.PCG) {
	c.seeker.Done(now, &c.Ladder, peer, result, rng)
}

// RequestNow makes the next lease request due at once, as after the loss of a slot.
func (c *Client) RequestNow(now int64) { c.seeker.RequestNow(now) }

// Wake returns when NextRequest is due if nothing happens before: see
// [LeaseSeeker.Wake].
func (c *Client) Wake() int64 {
	wake := c.seeker.Wake(&c.Ladder)
	if c.outage.on && !c.outage.over {
		wake = min(wake, c.outage.until)
	}
	return wake
}

// Filling is [LeaseSeeker.Filling].
func (c *Client) Filling() bool { return c.seeker.Filling(&c.Ladder) }
