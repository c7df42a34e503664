package core

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// newPeers returns a ladder with a slot of each of n trusted servers.
func newPeers(n int, rng *rand.PCG) *Ladder {
	l := NewLadder(n, make([]Slot, n+1), make([]Peer, n))
	for i := range int32(n) {
		l.Join(0, i, rng)
		l.Grant(i, 0)
		l.RecordOutcome(0, i, Success, rng)
	}
	return &l
}

func (l *Ladder) fails(now int64, peer int32, times int, rng *rand.PCG) {
	for range times {
		l.RecordOutcome(now, peer, Failure, rng)
	}
}

func TestAServerThatFailsSixTimesInARowIsEjected(t *testing.T) {
	rng := testseed.PCG(t)
	l := newPeers(10, rng)
	l.fails(1e9, 3, 5, rng)
	require.False(t, l.Peer(3).Ejected)
	l.fails(1e9, 3, 1, rng)
	require.True(t, l.Peer(3).Ejected)
	require.Equal(t, 1, l.Ejected())
	_, ok := l.Bid(3)
	require.False(t, ok, "an ejected server is not asked for slots")
	for range 9 {
		entry, ok := l.Acquire(1e9, rng)
		require.True(t, ok)
		_, peer, _, _, _ := l.Slot(entry)
		require.NotEqual(t, int32(3), peer, "slots of an ejected server rank last")
	}
	entry, ok := l.Acquire(1e9, rng)
	require.True(t, ok, "slots of an ejected server are used when all others are busy")
	_, peer, _, _, _ := l.Slot(entry)
	require.Equal(t, int32(3), peer)
}

func TestAServerThatFailsNowAndThenIsNotEjected(t *testing.T) {
	rng := testseed.PCG(t)
	l := newPeers(10, rng)
	for range 1000 {
		l.fails(1e9, 3, 2, rng)
		for range 4 {
			l.RecordOutcome(1e9, 3, Success, rng)
		}
		require.False(t, l.Peer(3).Ejected)
	}
}

func TestNoMoreThanAThirdIsEjected(t *testing.T) {
	rng := testseed.PCG(t)
	for servers, most := range map[int]int{1: 0, 2: 1, 3: 1, 5: 1, 6: 2, 30: 10} {
		l := newPeers(servers, rng)
		for range 100 {
			for i := range int32(servers) {
				l.fails(1e9, i, 1, rng)
			}
		}
		require.LessOrEqual(t, l.Ejected(), most, "of %d", servers)
		l = newPeers(servers, rng)
		for i := range int32(servers) {
			l.fails(1e9, i, 100, rng) // one server after another is the worst order
		}
		require.Equal(t, most, l.Ejected(), "of %d", servers)
	}
}

// A ladder whose other servers were unreachable had no slots for up to a minute: its last server
// had been ejected, so that it was not asked for slots after its connection broke.
func TestTheLastLiveServerIsUsed(t *testing.T) {
	rng := testseed.PCG(t)
	l := newPeers(3, rng)
	l.fails(1e9, 0, 100, rng)
	require.True(t, l.Peer(0).Ejected)
	for _, peer := range []int32{1, 2} {
		_, ok := l.Bid(0)
		require.False(t, ok)
		l.Lose(peer)
		l.Quarantine(1e9, peer, rng)
	}
	_, ok := l.Bid(0)
	require.True(t, ok, "it is asked for slots")

	l.Advance(1e9+2*ejectBase, rng) // ends the ejection
	l.fails(1e9+2*ejectBase, 0, 100, rng)
	require.False(t, l.Peer(0).Ejected, "no other one is live")
	l.heard(1)
	l.fails(1e9+2*ejectBase, 0, 1, rng)
	require.True(t, l.Peer(0).Ejected)
}

func TestEjectedServerIsTestedByOneRequest(t *testing.T) {
	rng := testseed.PCG(t)
	l := newPeers(10, rng)
	now, previous := int64(1e9), int64(0)
	ended := map[int64]bool{}
	l.fails(now, 3, 6, rng)
	for level := range 10 {
		pause := l.peers[3].ejection.until - now
		want := doubled(ejectBase, ejectLimit, uint8(level))
		require.True(t, pause >= want/2 && pause <= want*3/2, "%d at level %d", pause, level)
		ended[pause] = true
		now += pause - 1
		l.Advance(now, rng)
		require.True(t, l.Peer(3).Ejected)
		now++
		l.Advance(now, rng)
		require.False(t, l.Peer(3).Ejected)
		require.False(t, l.Peer(3).Trusted, "one request tests it")
		l.fails(now, 3, 1, rng)
		require.True(t, l.Peer(3).Ejected)
		previous = pause
	}
	require.Greater(t, previous, int64(ejectLimit/2))
	require.Greater(t, len(ended), 8, "pauses have jitter")

	now = l.peers[3].ejection.until
	l.Advance(now, rng)
	for range 200 { // healthy for a long time
		l.RecordOutcome(now, 3, Success, rng)
	}
	require.True(t, l.Peer(3).Trusted)
	require.Zero(t, l.faults)
	l.fails(now, 3, 6, rng)
	require.LessOrEqual(t, l.peers[3].ejection.until-now, int64(ejectBase*3/2), "the pauses start again at the minimum")
	l.Leave(3)
	require.Zero(t, l.Ejected())
	require.Zero(t, l.faults)
}

// With health checks an untrusted server gets no requests while there are others.
func TestAServerIsCheckedBeforeItIsUsed(t *testing.T) {
	rng := testseed.PCG(t)
	l := newPeers(3, rng)
	l.CheckHealth(0)
	check := func(now int64) (peer int32) {
		entry, ok := l.Check(now, rng)
		if !ok {
			return none
		}
		_, peer, _, _, _ = l.Slot(entry)
		_, more := l.Check(now, rng)
		require.False(t, more, "one check at a time")
		l.Release(now, entry, Neutral, rng)
		l.Checked(now, peer, true, rng)
		return peer
	}
	require.Equal(t, none, check(1e9), "all are trusted")
	l.fails(1e9, 1, 6, rng)
	require.Equal(t, none, check(1e9), "an ejected server is not checked")
	now := l.peers[1].ejection.until
	l.Advance(now, rng)
	for range 2 {
		entry, ok := l.Acquire(now, rng)
		require.True(t, ok)
		_, peer, _, _, _ := l.Slot(entry)
		require.NotEqual(t, int32(1), peer)
		l.Release(now, entry, Success, rng)
	}
	require.Equal(t, int32(1), check(now))
	require.Equal(t, none, check(now), "the next check is later")
	l.RecordOutcome(now, 1, Success, rng)
	require.True(t, l.Peer(1).Trusted)
	require.Equal(t, none, check(now+3600e9), "trusted servers are not checked")

	l.CheckHealth(10e9)
	seen := map[int32]int{}
	for now := int64(5000e9); now < 5100e9; now += 1e8 {
		if entry, ok := l.Check(now, rng); ok {
			_, peer, _, _, _ := l.Slot(entry)
			l.Release(now, entry, Success, rng)
			l.Checked(now, peer, true, rng)
			seen[peer]++
		}
	}
	l.Checked(5200e9, 2, false, rng)
	require.True(t, l.Peer(2).Ejected, "one failed check ejects a server")
	require.Len(t, seen, 3)
	for _, n := range seen {
		require.InDelta(t, 10, n, 5)
	}
}
