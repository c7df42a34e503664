package lsm

import (
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// TestObsoleteModel writes values that become obsolete at a time of a clock, which advances.
// A lookup finds the newest value of a key, or nothing if that is obsolete, but never an
// older value; a snapshot finds what it found before; and in the end nothing obsolete is
// left.
func TestObsoleteModel(t *testing.T) {
	r := testseed.Rand(t)
	var clock atomic.Int64
	obsoleteAt := func(value []byte, now int64) bool {
		due, err := strconv.Atoi(string(value))
		return err == nil && int64(due) <= now
	}
	obsolete := func(value []byte) bool { return obsoleteAt(value, clock.Load()) }
	o := &Options{
		FS: vfs.NewMem(), MemtableBytes: minMemtableBytes, MergeRule: MergeRule(r.IntN(2)),
		Obsolete: func() func(_, value []byte) bool {
			now := clock.Load()
			return func(_, value []byte) bool { return obsoleteAt(value, now) }
		},
	}
	db := open(t, "db", o)
	state, gone := map[string]string{}, 0
	check := func(get func(dst, key []byte) ([]byte, error), want map[string]string, mayLack func(string) bool) {
		for i := range 200 {
			key := fmt.Sprint("key", i)
			got, err := get(nil, []byte(key))
			value, ok := want[key]
			if err == nil {
				require.True(t, ok, "%s is %s", key, got)
				require.Equal(t, value, string(got))
				continue
			}
			require.ErrorIs(t, err, ErrNotFound)
			require.True(t, !ok || mayLack(value), "%s lacks %s", key, value)
			if ok {
				gone++
			}
		}
	}
	for range 20 {
		var snapshot *Snapshot
		var then map[string]string
		for range r.IntN(1000) {
			key := fmt.Sprint("key", r.IntN(200))
			switch r.IntN(20) {
			case 0:
				require.NoError(t, db.Delete([]byte(key)))
				delete(state, key)
			case 1:
				clock.Add(int64(r.IntN(10)))
			default:
				state[key] = fmt.Sprint(clock.Load() + int64(r.IntN(200)))
				set(t, db, key, state[key])
			}
			if snapshot == nil && r.IntN(500) == 0 {
				snapshot, then = db.NewSnapshot(), maps.Clone(state)
				for key := range state { // which may have left before
					if _, err := snapshot.Get(nil, []byte(key)); err != nil {
						require.ErrorIs(t, err, ErrNotFound)
						require.True(t, obsolete([]byte(then[key])))
						delete(then, key)
					}
				}
			}
		}
		check(db.Get, state, func(value string) bool { return obsolete([]byte(value)) })
		if snapshot != nil {
			check(snapshot.Get, then, func(string) bool { return false })
			require.NoError(t, snapshot.Close())
		}
		if r.IntN(4) == 0 {
			require.NoError(t, db.Close())
			db = open(t, "db", o)
		}
	}
	require.Positive(t, gone, "nothing was obsolete, so the test is void")
	require.NoError(t, db.Close())

	clock.Add(1000)
	o.MergeRule = MergeAlways
	db = open(t, "db", o)
	set(t, db, "last", "")
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	left := uint64(0)
	for _, table := range db.schedule.current.Load().tables {
		left += table.Facts.Entries - table.Facts.Tombstones
	}
	require.EqualValues(t, 1, left)
}
