package lsm

import (
	"fmt"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// TestFlushesMergeWhatTheRuleWouldMergeAtOnce counts tables as they are written: those
// of up to maxFusedUnits are never written to be merged at once, and what is there after
// each flush is what the rule leaves, a table for each bit of the number of flushes.
func TestFlushesMergeWhatTheRuleWouldMergeAtOnce(t *testing.T) {
	created := 0
	o := memOptions()
	o.FS = vfs.NewFault(o.FS, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && filepath.Ext(op.Name) == tableSuffix {
			created++
		}
		return nil
	})
	db := open(t, "db", o)
	const flushes = 16
	want := 0
	for n := 1; n <= flushes; n++ {
		for i := range 60 { // a full memtable
			set(t, db, fmt.Sprint(n*100+i), strings.Repeat("v", 1000))
		}
		require.NoError(t, db.Flush())
		require.NoError(t, db.WaitIdle(t.Context()))
		want++
		if n&-n > maxFusedUnits {
			want++ // the flush, and then the merge
		}
		db.mu.Lock()
		require.Equal(t, want, created, "tables written by %d flushes", n)
		db.mu.Unlock()
		var units uint64
		for _, table := range db.Stats().Tables {
			units += table.Units
		}
		require.EqualValues(t, n, units)
		require.Len(t, db.Stats().Tables, bits.OnesCount(uint(n)))
	}
	w := db.Stats().Writes
	require.EqualValues(t, flushes, w.Flushes)
	require.EqualValues(t, flushes/2, w.Merges)
	require.InDelta(t, w.RuleAmplification()+1./(2*maxFusedUnits), w.Amplification(), 0.02)
	require.NoError(t, db.Check())
}

// TestADamagedTableDoesNotStopFlushes has a table that cannot be merged in the way of
// a flush that would.
func TestADamagedTableDoesNotStopFlushes(t *testing.T) {
	o := memOptions()
	db := open(t, "db", o)
	set(t, db, "a", "old")
	require.NoError(t, db.Flush())
	path := db.current.Load().tables[0].path
	b, err := vfs.ReadFile(o.FS, path)
	require.NoError(t, err)
	b[tableHeaderBytes+blockHeaderBytes+8] ^= 1
	require.NoError(t, o.FS.Remove(path))
	writeFile(t, o.FS, path, b)

	for i := range 3 {
		set(t, db, "a", fmt.Sprint(i))
		require.NoError(t, db.Flush())
		requireValue(t, db, "a", fmt.Sprint(i))
	}
	require.ErrorIs(t, db.WaitIdle(t.Context()), ErrCorrupt)
	require.ErrorIs(t, db.Stats().Problem, ErrCorrupt)
	require.Len(t, db.Stats().Tables, 4)
}

// sliceSource is an entrySource of a sorted list, which may fail at its end.
type sliceSource struct {
	entries []entry
	at      int
	failure error
}

func (s *sliceSource) first() bool     { s.at = 0; return s.at < len(s.entries) }
func (s *sliceSource) next() bool      { s.at++; return s.at < len(s.entries) }
func (s *sliceSource) key() []byte     { return s.entries[s.at].key }
func (s *sliceSource) value() []byte   { return s.entries[s.at].value }
func (s *sliceSource) tombstone() bool { return s.entries[s.at].tombstone }
func (s *sliceSource) err() error {
	if s.at == len(s.entries) {
		return s.failure
	}
	return nil
}

func TestOverlaySource(t *testing.T) {
	r := testseed.Rand(t)
	failure := errors.New("a source failed")
	for range 300 {
		model := map[string]string{}
		random := func(name string) *sliceSource {
			s := &sliceSource{}
			for key := byte('a'); key < 'n'; key++ {
				if r.IntN(3) == 0 {
					e := entry{key: []byte{key}, value: []byte(name), tombstone: r.IntN(4) == 0}
					s.entries = append(s.entries, e)
					model[string(key)] = fmt.Sprint(name, e.tombstone)
				}
			}
			return s
		}
		older, newer := random("older"), random("new") // in this order: the newer one hides
		fails := r.IntN(3)
		switch fails {
		case 1:
			older.failure = failure
		case 2:
			newer.failure = failure
		}
		s := &overlaySource{newer: newer, older: older}
		got, keys := map[string]string{}, []string(nil)
		all, fresh := 0, 0
		for ok := s.first(); ok; ok = s.next() {
			keys = append(keys, string(s.key()))
			got[string(s.key())] = fmt.Sprint(string(s.value()), s.tombstone())
			all += 1 + len(s.value())
			if string(s.value()) == "new" {
				fresh += 1 + len(s.value())
			}
		}
		require.True(t, slices.IsSorted(keys))
		require.Len(t, keys, len(got))
		require.EqualValues(t, []int{all, fresh}, []int{int(s.bytes), int(s.newerBytes)})
		if fails == 0 {
			require.NoError(t, s.err())
			require.Equal(t, model, got)
			continue
		}
		require.ErrorIs(t, s.err(), failure)
		maps.DeleteFunc(model, func(key, value string) bool { return got[key] == value })
		for key := range model {
			require.NotContains(t, got, key)
		}
	}
}
