package boxcarrpc

import (
	"context"
	"encoding/binary"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/policy"
)

// MethodLoad answers with the requests that the server has in flight beside this
// one, as a uint32, little-endian: a probe for policies that ask. Whoever may call
// the server may call it.
const MethodLoad = "/boxcar.v1.Server/Load"

const (
	// choiceTries is how many servers a policy may choose that have no free slot
	// before any slot will do.
	choiceTries = 4
	// policyActions bounds what a policy may want done at once.
	policyActions = 1 << 10
	// probesShare is the part of a pool's slots, one in so many, that probes may
	// take; a probe beyond it is not sent.
	probesShare = 4
)

// A chooser has a policy choose among the servers of a pool. The ladder keeps as
// many slots of each server as of the others, the rover connects to all, and the
// policy is told of those that can be used; what it chooses is a server, of which a
// free slot is taken. Its fields are guarded by the pool's mutex.
type chooser struct {
	pool    *Pool
	policy  policy.Policy
	known   []serverState   // by peer
	choices []policy.Choice // by the ladder's entry
	chosen  []bool          // whether the entry's request is the policy's
	tried   []int32
	probes  int   // under way
	wake    int64 // the policy's, when the pool's timer was set
}

type serverState uint8

const (
	serverUnknown serverState = iota // to the policy
	serverJoined                     // and there is no slot that could be used
	serverUsable
)

// newChooser returns nil for slots: that is what the ladder does by itself.
func newChooser(p *Pool) *chooser {
	if p.options.Policy == nil {
		return nil
	}
	rule := p.options.Policy()
	if _, ok := rule.(*policy.Slots); ok {
		return nil
	}
	p.mu.ladder.SpreadEvenly()
	n := len(p.mu.entries)
	return &chooser{pool: p, policy: rule, choices: make([]policy.Choice, n), chosen: make([]bool, n)}
}

// pick takes a slot of a server that the policy chooses, or if none of its first
// choices has a free one any slot; nil if none is free.
func (c *chooser) pick(now int64, tried []int32) *clientLane {
	mu := &c.pool.mu
	c.tried = append(c.tried[:0], tried...)
	for range choiceTries {
		choice, ok := c.policy.Pick(now, policy.Query{Tried: c.tried}, &mu.rng)
		if !ok {
			break
		}
		entry, ok := mu.ladder.AcquireOf(now, choice.Server, &mu.rng)
		if ok {
			c.choices[entry], c.chosen[entry] = choice, true
			c.act(now)
			return c.pool.picked(now, entry)
		}
		outcome := policy.Neutral
		if choice.Fresh {
			outcome = policy.Broken // there is no such connection
		}
		c.policy.Done(now, choice, policy.Result{Outcome: outcome, Report: policy.Silent}, &mu.rng)
		c.tried = append(c.tried, choice.Server)
	}
	c.act(now)
	if entry, ok := mu.ladder.Acquire(now, &mu.rng); ok {
		return c.pool.picked(now, entry)
	}
	return nil
}

var policyOutcomes = [...]policy.Outcome{
	core.Neutral: policy.Neutral, core.Success: policy.Success, core.Refused: policy.Refused, core.Failure: policy.Neutral,
}

// done tells the policy how the request of a lane ended, if it chose it.
func (c *chooser) done(now int64, lane *clientLane, outcome policy.Outcome, lowest uint32) {
	if !c.chosen[lane.entry] {
		return
	}
	c.chosen[lane.entry] = false
	c.policy.Done(now, c.choices[lane.entry], policy.Result{
		Outcome: outcome, Took: now - lane.picked, Report: policy.Report{Lowest: int32(lowest), InFlight: int32(lane.response.Load)},
	}, &c.pool.mu.rng)
	c.act(now)
}

// step tells the policy what has changed about the servers, and does what it wants
// done.
func (c *chooser) step(now int64) {
	mu := &c.pool.mu
	for len(c.known) < len(mu.peers) {
		c.known = append(c.known, serverUnknown)
	}
	for i := range c.known {
		server := int32(i)
		info := mu.ladder.Peer(server)
		state := serverUnknown
		switch {
		case mu.peers[i] == nil || !info.Member:
		case info.Held == 0 || info.Suspect || info.Draining:
			state = serverJoined
		default:
			state = serverUsable
		}
		c.tell(now, server, state)
	}
	c.act(now)
}

func (c *chooser) tell(now int64, server int32, state serverState) {
	was, rng := c.known[server], &c.pool.mu.rng
	c.known[server] = state
	if was == state {
		return
	}
	switch {
	case state == serverUnknown:
		c.policy.Leave(now, server, rng)
	case was == serverUsable:
		c.policy.Learn(now, policy.News{Kind: policy.Lost, Server: server, Entry: -1}, rng)
	case was == serverUnknown:
		c.policy.Join(now, server, rng)
	}
	if state == serverUsable {
		c.policy.Learn(now, policy.News{Kind: policy.Connected, Server: server, Entry: -1}, rng)
	}
}

// act does what the policy wants done.
func (c *chooser) act(now int64) {
	p := c.pool
	for range policyActions {
		a, ok := c.policy.Next(now, &p.mu.rng)
		if !ok {
			break
		}
		switch a.Kind {
		case policy.Connect: // the rover does that; the policy hears of it in step
			if c.known[a.Server] == serverUsable {
				c.policy.Learn(now, policy.News{Kind: policy.Connected, Server: a.Server, Entry: a.Entry}, &p.mu.rng)
			}
		case policy.Disconnect:
			for _, t := range p.mu.peers[a.Server].transports {
				p.retireLanes(t)
			}
			p.mu.seeker.RequestNow(now)
			p.arm()
		case policy.Probe:
			c.probe(now, a)
		}
	}
	if c.policy.Wake() < c.wake {
		p.arm()
	}
}

// probe asks a server for its load, on a free slot and in a goroutine of its own.
func (c *chooser) probe(now int64, a policy.Action) {
	p := c.pool
	news := policy.News{Kind: policy.Failed, Server: a.Server, Entry: a.Entry, Report: policy.Silent}
	entry, ok := int32(-1), false
	if !p.mu.closed && c.probes <= p.options.Size/probesShare {
		entry, ok = p.mu.ladder.AcquireOf(now, a.Server, &p.mu.rng)
	}
	if !ok {
		c.policy.Learn(now, news, &p.mu.rng)
		return
	}
	c.probes++
	lane := p.picked(now, entry)
	p.attend()
	p.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.options.SilenceTimeout)
		defer cancel()
		out, _, err := p.exchange(ctx, lane, &call{method: MethodLoad}, nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		c.probes--
		after := p.now()
		if news.Took = after - now; err == nil && len(out) == 4 {
			news.Kind, news.Report.InFlight = policy.Probed, int32(binary.LittleEndian.Uint32(out))
		}
		c.policy.Learn(after, news, &p.mu.rng)
		c.act(after)
	})
}

// wakeAt is when the pool is to be woken for the policy.
func (c *chooser) wakeAt() int64 {
	c.wake = c.policy.Wake()
	return c.wake
}
