package lsm

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		pace
		want time.Duration
	}{
		"nothing waits":             {pace{filled: 1, flush: 100 * ms}, 0},
		"the first half is free":    {pace{filled: 0.5, flush: 100 * ms, waiting: true}, 0},
		"as fast as the flush":      {pace{filled: 0.75, elapsed: 50 * ms, flush: 100 * ms, waiting: true}, 0},
		"faster":                    {pace{filled: 0.75, elapsed: 40 * ms, flush: 100 * ms, waiting: true}, 10 * ms},
		"by less than a delay":      {pace{filled: 0.75, elapsed: 50*ms - leastDelay/2, flush: 100 * ms, waiting: true}, 0},
		"far faster":                {pace{filled: 1, elapsed: 40 * ms, flush: time.Hour, waiting: true}, mostDelay},
		"the flush is late":         {pace{filled: 0.8, elapsed: 50 * ms, flush: 10 * ms, waiting: true}, 10 * ms},
		"flush time unknown":        {pace{filled: 0.8, elapsed: 50 * ms, waiting: true}, 10 * ms},
		"merges are due":            {pace{filled: 1, flush: 100 * ms, excess: slowExcess}, 0},
		"many merges are due":       {pace{filled: 0.1, flush: 100 * ms, excess: maxExcess - 1}, mostDelay},
		"many are due, slow writer": {pace{filled: 1, elapsed: crowdedFlushes * 100 * ms, flush: 100 * ms, excess: maxExcess}, 0},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.delay()) })
	}
}

// pacedStore simulates, in virtual time, the parts of a store on which the pace of its
// writer depends.
type pacedStore struct {
	fill, flush, merge time.Duration // of a memtable: writing without delays, flushing, merging
	paced              bool

	now, flushed, merged time.Duration // flushed, merged: completion times
	expected             time.Duration
	longest              time.Duration // delay or stop
	mostExcess           int
}

func (s *pacedStore) wait(d time.Duration) {
	s.now += d
	s.longest = max(s.longest, d)
}

// excess is the number of tables that wait to be merged.
func (s *pacedStore) excess() int {
	if s.merge == 0 {
		return 0
	}
	return int(max(0, s.merged-s.now) / s.merge)
}

// write fills memtables and returns the time when all merges are done.
func (s *pacedStore) write(memtables int) time.Duration {
	for range memtables {
		begun := s.now
		for step := range paceSteps {
			s.now += s.fill / paceSteps
			if s.paced {
				s.wait(pace{
					filled: float64(step) / paceSteps, elapsed: s.now - begun, flush: s.expected,
					waiting: s.flushed > s.now, excess: s.excess(),
				}.delay())
			}
		}
		for s.excess() >= maxExcess {
			s.wait(s.merge)
		}
		s.wait(max(0, s.flushed-s.now)) // stop
		s.expected = expectFlush(s.expected, s.flush)
		s.flushed = s.now + s.flush
		s.merged = max(s.merged, s.flushed) + s.merge
		s.mostExcess = max(s.mostExcess, s.excess())
	}
	return max(s.now, s.flushed, s.merged)
}

func TestPaceShortensStallsWithoutCost(t *testing.T) {
	const ms = time.Millisecond
	for _, s := range []pacedStore{
		{fill: 100 * ms, flush: 350 * ms},
		{fill: 100 * ms, flush: 110 * ms},
		{fill: 100 * ms, flush: 50 * ms},
		{fill: 100 * ms, flush: 50 * ms, merge: 150 * ms},
		{fill: 10 * ms, flush: 20 * ms, merge: 100 * ms},
	} {
		t.Run(fmt.Sprintf("flush=%v,merge=%v", s.flush, s.merge), func(t *testing.T) {
			plain, paced := s, s
			paced.paced = true
			without, with := plain.write(200), paced.write(200)
			require.InEpsilon(t, without, with, 0.03, "speed")
			require.LessOrEqual(t, paced.longest, 2*mostDelay)
			require.LessOrEqual(t, paced.mostExcess, maxExcess)
			t.Logf("longest wait %v without delays, %v with", plain.longest, paced.longest)
		})
	}
}

// TestWritersAreDelayedBeforeTheyStall blocks a flush and requires delays first, then a
// stall.
func TestWritersAreDelayedBeforeTheyStall(t *testing.T) {
	release := make(chan struct{})
	held := make(chan struct{})
	first := true // used by the flusher only
	db := open(t, "db", &Options{FS: vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix && first {
			first = false
			close(held)
			<-release
		}
		return nil
	}), MemtableBytes: 64 << 10})
	db.schedule.mu.Lock()
	db.schedule.mu.flushTook = time.Hour
	db.schedule.mu.Unlock()
	n := 0
	for db.Stats().MemtablesWaiting == 0 {
		set(t, db, fmt.Sprint(n), "some value")
		n++
	}
	<-held
	for db.Stats().Writes.Delays == 0 {
		require.LessOrEqual(t, db.Stats().MemtablesWaiting, maxWaiting)
		set(t, db, fmt.Sprint(n), "some value")
		n++
	}
	s := db.Stats().Writes
	require.GreaterOrEqual(t, s.DelayTime, leastDelay)
	require.Zero(t, s.Stalls, "delayed before it is stopped")
	close(release)
	state, err := read(db)
	require.NoError(t, err)
	require.Len(t, state, n)
}
