package gossip

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"docstore/boxcarrpc/discovery"
)

// A claimant is a member that has a number or wants one.
type claimant struct {
	name string
	meta
}

// settleAfter is how long a member has held a number when its claim counts as settled.
// Conflicts of claims that are made at the same time are over by then.
const settleAfter = 30 * time.Second

// older is the order in which claimants keep numbers and get them: settled claims before
// those that are new, so that a member whose clock is slow cannot take a number that
// another one has held for long.
func older(a, b claimant) int {
	switch {
	case a.Settled && !b.Settled:
		return -1
	case b.Settled && !a.Settled:
		return 1
	}
	return cmp.Or(cmp.Compare(a.Claimed, b.Claimed), cmp.Compare(a.name, b.name))
}

// settle sorts out the claimants of a kind: who keeps a number, and which numbers
// the others are to claim, so that all who know the same come to the same.
func settle(all []claimant) (keepers map[int]claimant, claims map[string]int) {
	slices.SortFunc(all, older)
	keepers, claims = map[int]claimant{}, map[string]int{}
	var losers []claimant
	for _, c := range all {
		if _, taken := keepers[c.Number]; c.Number < 0 || taken {
			losers = append(losers, c)
		} else {
			keepers[c.Number] = c
		}
	}
	free := 0
	for _, c := range losers {
		for {
			if _, taken := keepers[free]; !taken {
				break
			}
			free++
		}
		claims[c.name] = free
		free++
	}
	return keepers, claims
}

// claimants lists the members of a kind, this one among them. m.mu is held.
func (m *Member) claimants(kind Kind) (all []claimant) {
	for name, said := range m.mu.others {
		if said.Kind == kind {
			all = append(all, claimant{name, said})
		}
	}
	if m.mu.own.Kind == kind {
		all = append(all, claimant{m.name, m.mu.own})
	}
	return all
}

// claim sees to it that this member has a number.
func (m *Member) claim() {
	// What others have to say comes within a few rounds of gossip; a claim that knows
	// of it is likely to last.
	round := 2 * m.gossip
	for timer := time.NewTimer(round); ; timer.Reset(round) {
		select {
		case <-timer.C:
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
		if m.consider() {
			// Others hear of it in time if this fails: by push and pull.
			_ = m.list.UpdateNode(round)
		}
		select {
		case <-m.news:
		case <-time.After(settleAfter):
		case <-m.ctx.Done():
			return
		}
	}
}

// consider claims a number if this member has none to keep, and settles a claim that it
// has kept for long enough by its monotonic clock. It reports whether there is something
// to tell the others.
func (m *Member) consider() (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, claims := settle(m.claimants(m.mu.own.Kind))
	number, wants := claims[m.name]
	if !wants {
		if m.mu.own.Settled || time.Since(m.mu.claimed) < settleAfter {
			return false
		}
		m.mu.own.Settled = true
		m.change()
		return true
	}
	if lost := m.mu.own.Number; lost >= 0 {
		m.options.Logger.Warn("another member's claim is older", "number", lost)
	}
	m.options.Logger.Info("claiming a number", "kind", string(m.mu.own.Kind), "number", number)
	m.mu.claimed = time.Now()
	m.mu.own.Number, m.mu.own.Claimed, m.mu.own.Settled = number, m.mu.claimed.UnixNano(), false
	m.change()
	return true
}

// Number returns the member's number, as far as it knows; false if it has none yet.
func (m *Member) Number() (number int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keepers, _ := settle(m.claimants(m.mu.own.Kind))
	keeper, ok := keepers[m.mu.own.Number]
	if !ok || keeper.name != m.name {
		return -1, false
	}
	return m.mu.own.Number, true
}

// Wait waits until the member has a number. It may lose it again.
func (m *Member) Wait(ctx context.Context) (number int, err error) {
	if m.options.Kind == Observer {
		return -1, fmt.Errorf("gossip: an observer has no number")
	}
	for {
		m.mu.Lock()
		changed := m.mu.changed
		m.mu.Unlock()
		if number, ok := m.Number(); ok {
			return number, nil
		}
		select {
		case <-changed:
		case <-m.ctx.Done():
			return -1, fmt.Errorf("gossip: the member has left")
		case <-ctx.Done():
			return -1, fmt.Errorf("gossip: no number yet: %w", ctx.Err())
		}
	}
}

// gather: changes within this time are told together.
const gather = 100 * time.Millisecond

// Watch tells of the backends that are heard of, until ctx ends or the member is
// closed. Each number has one, and Self is the watching Frontend's own.
func (m *Member) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	told := discovery.Snapshot{Numbers: -1}
	for {
		now, changed := m.snapshot()
		if !told.Equal(now) {
			told = now
			update(now)
		}
		select {
		case <-changed:
		case <-m.ctx.Done():
			return fmt.Errorf("gossip: the member has left")
		case <-ctx.Done():
			return ctx.Err()
		}
		timer := time.NewTimer(gather)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// snapshot is what the member knows, and a channel that is closed when that changes.
func (m *Member) snapshot() (s discovery.Snapshot, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	backends, _ := settle(m.claimants(Backend))
	for number, keeper := range backends {
		s.Servers = append(s.Servers, discovery.Server{Number: number, Address: keeper.Address, Weight: keeper.Weight})
	}
	var rest []discovery.Server
	s.Servers, rest = discovery.Dense(s.Servers)
	for _, server := range rest {
		m.options.Logger.Warn("a server is left out", "error", &discovery.NumberError{
			Source: "gossip member " + backends[server.Number].name,
			Number: server.Number, Limit: discovery.Limit(len(s.Servers)),
		})
	}
	if n := len(s.Servers); n > 0 {
		s.Numbers = s.Servers[n-1].Number + 1
	}
	frontends, _ := settle(m.claimants(Frontend))
	s.Self = -1
	for number, keeper := range frontends {
		s.Frontends = max(s.Frontends, number+1)
		if keeper.name == m.name {
			s.Self = number
		}
	}
	return s, m.mu.changed
}
