package lsm

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// newTestScheduler returns a scheduler without a store, for tables of the given sizes in
// memtables, newest first, and a number of memtables.
func newTestScheduler(memtables int, sizes ...uint64) *scheduler {
	const unit = 1 << 20
	s := &scheduler{
		env:           &environment{Env: table.Env{Logger: slog.New(slog.DiscardHandler)}},
		counters:      new(counters),
		memtableBytes: func() int64 { return unit },
		due:           new(atomic.Bool),
		ran:           func() {},
		closing:       make(chan struct{}),
	}
	s.mu.changed.L = &s.mu.Mutex
	var tables []*table.Reader
	for _, size := range sizes {
		tables = append(tables, &table.Reader{Facts: table.Facts{ValueBytes: size * unit}})
	}
	var all []*memtable.Memtable
	for range memtables {
		m := memtable.New(nil, unit, 0, memtable.Account{})
		m.Add(0, nil, memtable.Version{Sequence: 1})
		all = append(all, m)
	}
	s.current.Store(newView(all, tables))
	return s
}

func TestFlushAndMergeUseDisjointTables(t *testing.T) {
	s := newTestScheduler(2, 1, 2, 8, 8)
	tables := s.current.Load().tables
	f, err := s.beginFlush()
	require.NoError(t, err)
	require.Equal(t, tables[:2], f.inputs, "the rule merges them with the memtable")
	require.EqualValues(t, 4, f.units)
	m, oldest := s.beginMerge(nil)
	require.Equal(t, tables[2:], m.inputs)
	require.True(t, oldest)
	s.endMerge(m)
	s.dropInputs(f)
	require.Empty(t, f.inputs)
	require.NotEqual(t, m.number, f.number)
	s.endFlush()
	s.mu.merge.err = errors.New("bad disk")
	f, err = s.beginFlush()
	require.NoError(t, err)
	require.Empty(t, f.inputs, "merges fail")
}

// TestMergePausesForSmallerNewerMergesOnly: an equally large merge would be merged again
// at once.
func TestMergePausesForSmallerNewerMergesOnly(t *testing.T) {
	s := newTestScheduler(1, 1, 1, 8, 8)
	tables := s.current.Load().tables
	inputs, oldest := s.dueMerge(tables[2:])
	require.Equal(t, tables[:2], inputs)
	require.False(t, oldest)
	s = newTestScheduler(1, 8, 8, 8, 8)
	inputs, _ = s.dueMerge(s.current.Load().tables[2:])
	require.Empty(t, inputs)
}

func TestFlushesStopWhileTooManyTablesAreDue(t *testing.T) {
	sizes := make([]uint64, 2*maxExcess)
	for i := range sizes {
		sizes[i] = 1
	}
	s := newTestScheduler(2, sizes...)
	require.True(t, s.memtableDue())
	require.False(t, s.flushDue())
	s.mu.merge.err = errors.New("bad disk")
	require.True(t, s.flushDue(), "to report the error")
	_, err := s.beginFlush()
	require.ErrorIs(t, err, s.mu.merge.err)
}

func TestFailedTaskIsRetriedWithIncreasingDelays(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s := newTestScheduler(2)
		bad := errors.New("bad disk")
		start := time.Now()
		var at []time.Duration // guarded by s.mu, as is fail
		fail := true
		s.start(func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			at = append(at, time.Since(start))
			if fail {
				return bad
			}
			s.setView(s.current.Load().memtables[:1], nil)
			return nil
		}, nil, nil, func() bool { return false })
		time.Sleep(8 * firstRetry)
		synctest.Wait()
		require.ErrorIs(t, s.waitIdle(t.Context()), bad)
		require.ErrorIs(t, s.flushError(), bad)
		s.mu.Lock()
		require.Equal(t, []time.Duration{0, firstRetry, 3 * firstRetry, 7 * firstRetry}, at)
		fail = false
		s.mu.Unlock()
		time.Sleep(8 * firstRetry)
		synctest.Wait()
		require.NoError(t, s.waitIdle(t.Context()))
		require.EqualValues(t, 4, s.counters.failures.Load())
		s.close()
		s.background.Wait()
		require.ErrorIs(t, s.waitIdle(t.Context()), ErrClosed)
	})
}
