package lsm

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestLargeMergePausesForSmallOnes blocks a large merge, flushes several memtables, and
// requires that they are merged before the large merge ends.
func TestLargeMergePausesForSmallOnes(t *testing.T) {
	var (
		db             *DB
		mu             sync.Mutex
		written        = map[string]int{}
		large          string // the table whose merge was blocked
		before, during uint64 // merges done before it continued, and when it ended
	)
	held, release := make(chan struct{}), make(chan struct{})
	hook := func(op vfs.Op) error {
		if filepath.Ext(op.Name) != tableSuffix {
			return nil
		}
		mu.Lock()
		written[op.Name] += op.Bytes
		first := op.Kind == vfs.OpWrite && large == "" && written[op.Name] > 6<<20 // larger than any merge before it
		if first {
			large = op.Name
		}
		if op.Kind == vfs.OpSync && op.Name == large {
			during = db.counters.merges.Load()
		}
		mu.Unlock()
		if first {
			close(held)
			<-release
		}
		return nil
	}
	db = open(t, "db", &Options{MemtableBytes: 768 << 10, Durability: None, FS: vfs.NewFault(vfs.NewMem(), hook)})
	value := make([]byte, 1000)
	entries := 0
	write := func() {
		require.NoError(t, db.Set(fmt.Appendf(nil, "key%06d", entries), value))
		entries++
	}
	for i := range 16 { // the last begins the merge of all of them, of 11 MB
		require.NoError(t, db.WaitIdle(t.Context()))
		for range 700 {
			write()
		}
		if i == 15 {
			require.Len(t, db.Stats().Tables, 4)
		}
		require.NoError(t, db.Flush())
	}
	<-held
	for range 2 * maxFusedUnits { // flush until more is due than flushes merge themselves
		for range 700 {
			write()
		}
		require.NoError(t, db.Flush())
	}
	before = db.counters.merges.Load()
	tables := len(db.Stats().Tables)
	under := db.Stats().Merges
	require.Len(t, under, 1)
	require.Len(t, under[0].Tables, 5)
	require.Greater(t, under[0].WrittenBytes, uint64(mergeStepBytes))
	require.Less(t, under[0].WrittenBytes, under[0].InputBytes)
	close(release)
	require.NoError(t, db.WaitIdle(t.Context()))
	require.Empty(t, db.Stats().Merges)
	mu.Lock()
	require.Greater(t, during, before, "small merges were done while the large one ran")
	mu.Unlock()
	require.Less(t, len(db.Stats().Tables), tables)
	require.NoError(t, db.Check())
	state, err := read(db)
	require.NoError(t, err)
	require.Len(t, state, entries)
}

// TestWritersWaitForFlush fills memtables while flushes fail: maxWaiting memtables
// wait, writers stall, and continue after a flush.
func TestWritersWaitForFlush(t *testing.T) {
	release := make(chan struct{})
	var started atomic.Bool
	o := &Options{MemtableBytes: minMemtableBytes, FS: vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			started.Store(true)
			<-release
		}
		return nil
	})}
	db := open(t, "db", o)
	const writes = 200
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < writes && err == nil; i++ {
			err = db.Set(fmt.Appendf(nil, "%d", i), make([]byte, 200))
		}
		done <- err
	}()
	for !started.Load() || db.Stats().MemtablesWaiting < maxWaiting {
	}
	db.schedule.mu.Lock()
	require.Len(t, db.schedule.current.Load().memtables, maxWaiting+1)
	db.schedule.mu.Unlock()
	close(release)
	require.NoError(t, <-done)
	require.Positive(t, db.Stats().Writes.StallTime)
	state, err := read(db)
	require.NoError(t, err)
	require.Len(t, state, writes)
}
