package kv

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// sliceSource is a Source of a sorted slice that returns some entries at a time,
// and optionally an error at its end.
type sliceSource struct {
	entries []Entry
	failure error
}

func (s *sliceSource) Next(dst []Entry) ([]Entry, error) {
	if len(s.entries) == 0 {
		return dst, s.failure
	}
	n := min(3, len(s.entries))
	dst, s.entries = append(dst, s.entries[:n]...), s.entries[n:]
	return dst, nil
}

func TestLeast(t *testing.T) {
	r := testseed.Rand(t)
	for range 10_000 {
		prefixes := make([]uint64, 1+r.IntN(6))
		for i := range prefixes {
			prefixes[i] = []uint64{0, 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64, r.Uint64()}[r.IntN(6)]
		}
		at, tied := least(prefixes)
		want := slices.Min(prefixes)
		require.Equal(t, slices.Index(prefixes, want), at, prefixes)
		require.Equal(t, slices.Contains(prefixes[at+1:], want), tied, prefixes)
	}
}

// TestMergedSource merges sources with common keys and a common prefix: the newest
// entry wins, and an error of a source ends the merge.
func TestMergedSource(t *testing.T) {
	r := testseed.Rand(t)
	failure := errors.New("a source failed")
	const shared = "beginning"
	for range 300 {
		model := map[string]string{}
		// Prefixes differ, or are equal for all or ten keys.
		format := []string{"%s%03d", "%sof a key %03d", "%sof key %03d"}[r.IntN(3)]
		random := func(name string) *sliceSource {
			s := &sliceSource{}
			for n := range 400 {
				if r.IntN(3) == 0 {
					e := Entry{Key: fmt.Appendf(nil, format, shared, n), Value: []byte(name), Tombstone: r.IntN(4) == 0}
					s.entries = append(s.entries, e)
					model[string(e.Key)] = fmt.Sprint(name, e.Tombstone)
				}
			}
			return s
		}
		sources := make([]Source, 1+r.IntN(5))
		for i := range sources { // the oldest first: newer ones hide
			sources[len(sources)-1-i] = random(fmt.Sprint(len(sources) - 1 - i))
		}
		fails := r.IntN(2*len(sources)) - len(sources)
		if fails >= 0 {
			sources[fails].(*sliceSource).failure = failure
		}
		s := NewMergedSource(sources, len(shared))
		got, keys := map[string]string{}, []string(nil)
		all, fresh := 0, 0
		for {
			batch, err := s.Next(nil)
			for _, e := range batch {
				keys = append(keys, string(e.Key))
				got[string(e.Key)] = fmt.Sprint(string(e.Value), e.Tombstone)
				all++
				if string(e.Value) == "0" {
					fresh++
				}
			}
			if fails >= 0 && err != nil {
				require.ErrorIs(t, err, failure)
				break
			}
			require.NoError(t, err)
			if len(batch) == 0 {
				require.Negative(t, fails, "the failure was not returned")
				require.Equal(t, model, got)
				break
			}
		}
		require.True(t, slices.IsSorted(keys))
		require.Len(t, keys, len(got))
		require.InDelta(t, float64(fresh)/float64(max(1, all)), s.NewestShare(), 1e-9)
		maps.DeleteFunc(got, func(key, value string) bool { return model[key] == value })
		require.Empty(t, got)
	}
}
