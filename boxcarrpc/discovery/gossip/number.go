package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"docstore/boxcarrpc/discovery"
)

// A claimant is a member that has or needs a number.
type claimant struct {
	name string
	meta
}

// settleAfter is the time after which a claim is settled. Conflicts between concurrent
// claims are resolved by then.
const settleAfter = 30 * time.Second

// older is the order in which claimants keep and get numbers. Settled claims are before
// new ones, so that a member with a slow clock cannot take a number that another has
// held for long.
func older(a, b claimant) int {
	switch {
	case a.Settled && !b.Settled:
		return -1
	case b.Settled && !a.Settled:
		return 1
	}
	return cmp.Or(cmp.Compare(a.Claimed, b.Claimed), cmp.Compare(a.name, b.name))
}

// settle resolves the claims of a kind. It returns the keeper of each number, and the
// numbers that the other members claim next. The result depends only on its argument.
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

// claimants returns the members of a kind, including this one: of the frontends, those of
// the zone of this one. m.mu is held.
func (m *Member) claimants(kind Kind) (all []claimant) {
	for name, other := range m.mu.others {
		if other.Kind == kind && (kind != Frontend || other.Zone == m.mu.own.Zone) {
			all = append(all, claimant{name, other})
		}
	}
	if m.mu.own.Kind == kind {
		all = append(all, claimant{m.name, m.mu.own})
	}
	return all
}

// claim claims and settles this member's number until it leaves.
func (m *Member) claim() {
	// Wait for a few rounds of gossip: a claim based on the others' state is likely to
	// last.
	round := 2 * m.gossip
	for timer := time.NewTimer(round); ; timer.Reset(round) {
		select {
		case <-timer.C:
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
		if m.consider() {
			// After a failure the others learn of the claim by a full state exchange.
			_ = m.list.UpdateNode(round)
		}
		select {
		case <-m.wake:
		case <-time.After(settleAfter):
		case <-m.ctx.Done():
			return
		}
	}
}

// consider claims a number if this member keeps none, and settles a claim that it has
// kept for settleAfter on its monotonic clock. It reports whether the metadata changed.
func (m *Member) consider() (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, claims := settle(m.claimants(m.mu.own.Kind))
	number, needed := claims[m.name]
	if !needed {
		if m.mu.own.Settled || time.Since(m.mu.claimed) < settleAfter {
			return false
		}
		m.mu.own.Settled = true
		m.change()
		return true
	}
	if lost := m.mu.own.Number; lost >= 0 {
		m.options.Logger.Warn("lost a number to an older claim", "number", lost)
	}
	m.options.Logger.Info("claiming a number", "kind", string(m.mu.own.Kind), "number", number)
	m.mu.claimed = time.Now()
	m.mu.own.Number, m.mu.own.Claimed, m.mu.own.Settled = number, m.mu.claimed.UnixNano(), false
	m.change()
	return true
}

// Number returns the member's number in its own view. It is not ok if it has none.
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
		return -1, errors.New("gossip: an observer has no number")
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
			return -1, errLeft
		case <-ctx.Done():
			return -1, fmt.Errorf("gossip: no number claimed: %w", ctx.Err())
		}
	}
}

// gather is the time in which changes are combined into one update.
const gather = 100 * time.Millisecond

var errLeft = errors.New("gossip: the member has left")

// Watch reports the known backends until ctx ends or the member is closed. Each number
// has one backend. Self is the number of a Frontend.
func (m *Member) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	last := discovery.Snapshot{Numbers: -1}
	for {
		now, changed := m.snapshot()
		if !last.Equal(now) {
			last = now
			update(now)
		}
		select {
		case <-changed:
		case <-m.ctx.Done():
			return errLeft
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

// snapshot returns the member's view, and a channel that is closed when it changes.
func (m *Member) snapshot() (s discovery.Snapshot, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	backends, _ := settle(m.claimants(Backend))
	for number, keeper := range backends {
		s.Servers = append(s.Servers, discovery.Server{Number: number, Address: keeper.Address, Weight: keeper.Weight, Zone: keeper.Zone})
	}
	var rest []discovery.Server
	s.Servers, rest = discovery.Dense(s.Servers)
	for _, server := range rest {
		m.options.Logger.Warn("ignoring a server", "error", &discovery.NumberError{
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
