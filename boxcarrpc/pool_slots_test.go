package boxcarrpc

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/core"
	"docstore/internal/testseed"
)

// A slotsModel drives slots at random, without connections, and checks their invariants.
type slotsModel struct {
	t          *testing.T
	rng        *rand.Rand
	slots      slots
	transports []*transport
	due        bool          // slots has notified since the last step
	idle       []*clientLane // not leased
	busy       []*clientLane // used by calls
	waiters    []*waiter
}

func TestSlotsKeepTheirInvariants(t *testing.T) {
	const servers, size = 4, 6
	m := &slotsModel{t: t, rng: testseed.Rand(t)}
	options, err := (&PoolOptions{Size: size}).withDefaults()
	require.NoError(t, err)
	m.slots.init(&options, clock{time.Now()}, m.rng.Uint64(), func() { m.due = true })
	m.slots.update(func(now int64, l *core.Client, rng *rand.PCG) {
		l.Grow(make([]core.Peer, servers))
		for i := range int32(servers) {
			l.Join(now, i, rng)
		}
	})
	for i := range int32(servers) {
		m.transports = append(m.transports, &transport{peer: &poolPeer{index: i}})
	}
	operations := []func(){m.request, m.request, m.acquire, m.acquire, m.acquire, m.release, m.release, m.release, m.step, m.lose, m.retire}
	for range 2000 {
		operations[m.rng.IntN(len(operations))]()
		m.check()
	}
}

// request makes a lease request to which a server grants or denies a slot.
func (m *slotsModel) request() {
	s := &m.slots
	s.update(func(now int64, l *core.Client, _ *rand.PCG) { l.RequestNow(now) })
	peer, below, ok := s.nextRequest()
	if !ok {
		return
	}
	number := m.rng.Int32N(10)
	if number >= below {
		s.update(func(now int64, l *core.Client, rng *rand.PCG) { l.Done(now, peer, core.Declined, rng) })
		return
	}
	lane := &clientLane{transport: m.transports[peer], entry: -1}
	if !s.grant(lane, number) {
		require.Negative(m.t, lane.entry)
	}
}

func (m *slotsModel) acquire() {
	var tried []int32
	if m.rng.IntN(4) == 0 {
		tried = []int32{m.rng.Int32N(int32(len(m.transports)))}
	}
	lane, w, err := m.slots.acquire(m.slots.now(), tried, len(tried) > 0 && m.rng.IntN(2) == 0)
	switch {
	case lane != nil:
		require.NoError(m.t, err)
		m.take(lane)
	case w != nil:
		require.NoError(m.t, err)
		m.waiters = append(m.waiters, w)
	default:
		require.Error(m.t, err)
	}
}

// take records that a call has a lane. No other call has it.
func (m *slotsModel) take(lane *clientLane) {
	require.NotContains(m.t, m.busy, lane)
	m.busy = append(m.busy, lane)
}

func (m *slotsModel) release() {
	if len(m.busy) == 0 {
		return
	}
	i := m.rng.IntN(len(m.busy))
	lane := m.busy[i]
	m.busy = slices.Delete(m.busy, i, i+1)
	held := lane.entry >= 0
	response := core.Response{Outcome: core.Outcome(m.rng.IntN(4)), Lowest: m.rng.Int32N(10)}
	m.slots.release(m.slots.now(), lane, response, m.rng.IntN(8) == 0)
	if held && lane.entry < 0 {
		require.True(m.t, m.due, "a lane was given back without notice")
	}
}

// step takes the lanes that slots gives back.
func (m *slotsModel) step() {
	m.due = false
	for lane := m.slots.returned(); lane != nil; lane = m.slots.returned() {
		require.Negative(m.t, lane.entry)
		require.NotContains(m.t, m.busy, lane)
		require.NotContains(m.t, m.idle, lane, "given back twice")
		m.idle = append(m.idle, lane)
	}
}

func (m *slotsModel) lose() {
	if m.rng.IntN(8) == 0 {
		m.slots.lose(m.transports[m.rng.IntN(len(m.transports))])
	}
}

func (m *slotsModel) retire() {
	if m.rng.IntN(8) == 0 {
		m.slots.retire(m.transports[m.rng.IntN(len(m.transports))])
	}
}

func (m *slotsModel) check() {
	m.waiters = slices.DeleteFunc(m.waiters, func(w *waiter) bool {
		select {
		case lane := <-w.ready:
			m.take(lane)
			return true
		default:
			return false
		}
	})
	s := &m.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	require.ElementsMatch(m.t, m.waiters, s.mu.waiters)
	for entry, lane := range s.mu.lanes {
		_, peer, busy, _, used := s.mu.ladder.Slot(int32(entry))
		require.Equal(m.t, used, lane != nil)
		if lane != nil {
			require.Equal(m.t, int32(entry), lane.entry)
			require.Equal(m.t, peer, lane.transport.peer.index)
			require.Equal(m.t, busy, slices.Contains(m.busy, lane))
		}
	}
	for _, w := range s.mu.waiters {
		require.True(m.t, len(w.tried) > 0 || s.mu.ladder.Free() == 0, "a call waits while a slot is free")
	}
	select {
	case <-s.mu.ready:
		require.Positive(m.t, s.mu.ladder.Held())
	default:
		require.Zero(m.t, s.mu.ladder.Held())
	}
}
