package maintain

import (
	"fmt"
	"testing"

	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

func TestPlanRewrites(t *testing.T) {
	of := func(n queue.SegmentID, live, stored int64) part {
		return part{Run: segment.Run{First: n, Last: n, Generation: 0}, live: live, stored: stored}
	}
	names := func(parts ...part) (names []string) {
		for _, run := range planRewrites(parts, 0.5, 100) {
			names = append(names, fmt.Sprintf("%d-%d.%d", run.first(), run.last(), run.highestGeneration()+1))
		}
		return names
	}
	require.Empty(t, names(of(1, 50, 100), of(2, 0, 0)), "no more dead than allowed")
	require.Equal(t, []string{"1-2.1", "4-4.1"}, names(of(1, 10, 100), of(2, 10, 100), of(3, 90, 100), of(4, 10, 100)))
	require.Equal(t, []string{"1-1.1", "2-3.1"}, names(of(1, 90, 300), of(2, 20, 100), of(3, 80, 300)), "at most 100 live")
	require.Equal(t, []string{"1-1.1", "3-3.1"}, names(of(1, 1, 9), of(3, 1, 9)), "with a hole")
	rewritten, other := of(2, 1, 9), of(3, 1, 9)
	rewritten.Generation, other.codec = 4, "s2"
	require.Equal(t, []string{"1-2.5", "3-3.1"}, names(of(1, 1, 9), rewritten, other))

	newest := of(2, 1, 9)
	newest.newest = true
	require.Equal(t, []string{"1-1.1"}, names(of(1, 1, 9), newest), "the newest is not rewritten")
	newest.erase = true
	require.Equal(t, []string{"2-2.1"}, names(of(1, 9, 9), newest), "unless something in it must be erased")

	small := func(n queue.SegmentID, live int64) part {
		p := of(n, live, live)
		p.Generation = uint32(n)
		return p
	}
	require.Empty(t, names(small(1, 10), small(2, 10), small(3, 10), of(4, 10, 10)), "too few")
	require.Equal(t, []string{"1-4.5", "5-8.9"}, names(small(1, 25), small(2, 25), small(3, 25), small(4, 25),
		small(5, 10), small(6, 10), small(7, 10), small(8, 10), small(9, 26)))
	require.Empty(t, names(small(1, 10), small(2, 10), of(3, 9, 9), small(4, 10), small(5, 10)), "not adjacent")
}

// TestPlanTaints: a dictionary trained from documents to be erased must be replaced, and
// so must dictionaries trained from documents that are encoded again for that reason.
func TestPlanTaints(t *testing.T) {
	of := func(n queue.SegmentID, sampled segment.Run) part {
		return part{Run: segment.Run{First: n, Last: n, Generation: 0}, encoding: encoding{dictionary: codec.DictionaryHash{1}}, sampled: sampled}
	}
	tainted := func(parts ...part) (found []queue.SegmentID) {
		markTainted(parts)
		for _, p := range parts {
			require.Equal(t, p.tainted, p.dictionary == codec.DictionaryHash{})
			if p.tainted {
				found = append(found, p.First)
			}
		}
		return found
	}
	dead := of(2, segment.Run{First: 1, Last: 1, Generation: 0})
	dead.erase = true
	clean, unknown := of(3, segment.Run{First: 1, Last: 1, Generation: 0}), of(4, segment.Run{})
	require.Empty(t, tainted(of(1, segment.Run{First: 1, Last: 1, Generation: 0}), clean))
	require.Equal(t, []queue.SegmentID{4}, tainted(clean, unknown))
	require.Empty(t, tainted(dead, clean))
	require.Equal(t, []queue.SegmentID{5, 7}, tainted(dead, clean, of(5, segment.Run{First: 2, Last: 3, Generation: 0}), of(7, segment.Run{First: 5, Last: 6, Generation: 0})))
	rewritten := of(8, segment.Run{First: 8, Last: 8, Generation: 3})
	rewritten.Generation = 3
	require.Empty(t, tainted(rewritten), "its own documents")
	rewritten.Generation = 4
	require.Equal(t, []queue.SegmentID{8}, tainted(rewritten), "some of them have been left out")
}
