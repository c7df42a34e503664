package queue_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPositionBinary(t *testing.T) {
	p := queue.Position{
		Queue: [16]byte([]byte("0123456789abcdef")), Next: queue.Address{Segment: 2, Block: 208},
		Proof: queue.Proof{Footer: queue.FooterDigest(mustHex(t, "a13e9dbf70b505557933d3e080669dfb")), Chain: 0x1ea1cfbb},
	}
	b, err := p.MarshalBinary()
	require.NoError(t, err)
	page, err := os.ReadFile("../docs/format/position.md")
	require.NoError(t, err)
	withoutSpaces := strings.NewReplacer(" ", "")
	require.Contains(t, withoutSpaces.Replace(string(page)), withoutSpaces.Replace(hex.Dump(b)))
	var got queue.Position
	require.NoError(t, got.UnmarshalBinary(b))
	require.Equal(t, p, got)
	require.Equal(t, "30313233343536373839616263646566:2/208/0", p.String())
	require.True(t, p.SamePlace(queue.Position{Queue: p.Queue, Next: p.Next}))

	require.ErrorIs(t, got.UnmarshalBinary(b[:27]), queue.ErrCorrupt, "the form without a proof")
	b[0]++
	require.ErrorIs(t, got.UnmarshalBinary(b), queue.ErrNewerVersion)
	require.Equal(t, p, got)
}

func mustHex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func TestParseAddress(t *testing.T) {
	a := queue.Address{Segment: 3, Block: 4294967295, Index: 65535}
	got, err := queue.ParseAddress(a.String())
	require.NoError(t, err)
	require.Equal(t, a, got)
	for _, bad := range []string{"", "3", "3/128", "3/128/0/0", "0/0/0", "3/-1/0", "3/128/65536", "4294967296/0/0", "a/b/c"} {
		_, err := queue.ParseAddress(bad)
		require.ErrorContains(t, err, "SEGMENT/BLOCK/INDEX", bad)
	}
}

// twoHistories writes two queues with the same id and the same entries up to common, then
// with different entries of the same sizes, so that entry i of both has the same address.
// seal: the segment of the last common entry is sealed before they diverge.
func twoHistories(t *testing.T, seal bool) (histories [2]*vfs.Mem, entries [2][]queuetest.Item, common int) {
	for h := range histories {
		mem := queuetest.NewSource(t)
		opts := queuetest.Options(mem)
		opts.BlockBytes = 300
		w := queuetest.OpenWriter(t, opts)
		for i := range 24 {
			document := queuetest.Posting(i)[:150]
			if i >= 14 {
				document = fmt.Sprint(h, document[1:])
			}
			_, err := w.Append([]byte(fmt.Sprint("id-", i)), []byte(document))
			require.NoError(t, err)
			switch {
			case i == 5 || i == 13 && seal || i == 19:
				require.NoError(t, w.Seal())
			case i%4 == 3:
				require.NoError(t, w.Flush())
			}
		}
		require.NoError(t, w.Close())
		histories[h] = mem
		entries[h] = queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{})
	}
	require.Equal(t, entries[0][13].At, entries[1][13].At)
	require.Equal(t, entries[0][20].At, entries[1][20].At)
	return histories, entries, 14
}

// TestForkIsReportedAtEveryAttempt reads from positions of one history with the files of
// another: the source was restored from an older copy and written again. A reader past
// the common entries never continues.
func TestForkIsReportedAtEveryAttempt(t *testing.T) {
	for _, seal := range []bool{true, false} {
		t.Run(fmt.Sprint("sealed before=", seal), func(t *testing.T) {
			histories, entries, common := twoHistories(t, seal)
			for i, e := range entries[0] {
				for range 2 { // a restarted reader has only the position
					rest, err := queuetest.TryScan(queuetest.OpenReader(t, histories[1]), e.Next)
					if i < common {
						require.NoError(t, err, "entry %d", i)
						require.Len(t, rest, len(entries[1])-i-1)
						continue
					}
					require.ErrorIs(t, err, queue.ErrForked, "entry %d at %s", i, e.Next)
					require.Empty(t, rest)
				}
			}
		})
	}
}

// TestForkAtTheEndOfAnOpenSegment: a reader has stopped after a block. In the open segment of
// another history the last commit mark ends there.
func TestForkAtTheEndOfAnOpenSegment(t *testing.T) {
	var ends [2][]queuetest.Item
	var readers [2]*queue.Reader
	for h := range readers {
		mem := queuetest.NewSource(t)
		w := queuetest.OpenWriter(t, queuetest.Options(mem))
		_, err := w.Append([]byte("id"), make([]byte, 100-h*segment.MarkBytes))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		readers[h] = queuetest.OpenReader(t, mem)
		ends[h] = queuetest.Scan(t, readers[h], queue.Position{})
	}
	_, err := queuetest.TryScan(readers[1], ends[0][0].Next)
	require.ErrorIs(t, err, queue.ErrForked)
	require.NotErrorIs(t, err, queue.ErrCorrupt)
}

// TestRemovedNewestSegmentWhoseNumberIsUsedAgain: a reader that has read the removed
// segment reports a fork, whatever the sizes of the two segments are. It reports neither
// damage ("frame is of type 23") nor that it has caught up.
func TestRemovedNewestSegmentWhoseNumberIsUsedAgain(t *testing.T) {
	for name, sizes := range map[string][]int{"shorter": {20}, "longer": {400, 300, 17}, "other blocks": {33, 150, 150, 150}} {
		for _, seal := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/sealed=%t", name, seal), func(t *testing.T) {
				virtualtime.Test(t, func(t *testing.T) { usedAgain(t, sizes, seal) })
			})
		}
	}
}

func usedAgain(t *testing.T, sizes []int, seal bool) {
	mem := queuetest.NewMem(t)
	write := func(segments int, sizes []int, seal bool) {
		opts := queuetest.Options(mem)
		opts.BlockBytes = 200
		w := queuetest.OpenWriter(t, opts)
		for range segments {
			for i, size := range sizes {
				_, err := w.Append([]byte(fmt.Sprint("id-", i)), []byte(strings.Repeat("x", size)))
				require.NoError(t, err)
			}
			if seal {
				require.NoError(t, w.Seal())
			}
		}
		require.NoError(t, w.Flush())
		if seal {
			require.NoError(t, w.Close())
		}
	}
	write(2, []int{150, 150, 150}, true)
	entries := queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{})
	require.NoError(t, mem.Remove(segment.Path(queuetest.Dir, 2, segment.SealedSuffix)))
	require.NoError(t, mem.Remove(queuetest.Dir+"/"+queue.HeadName)) // otherwise the writer refuses
	write(1, sizes, seal)
	for i, e := range entries {
		r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem, OnCaughtUp: func(p queue.Position) {
			assert.LessOrEqual(t, i, 2, "caught up at %s", p)
		}})
		require.NoError(t, err)
		defer r.Close()
		if i <= 2 {
			rest := queuetest.Scan(t, r, e.Next)
			require.Len(t, rest, 2-i+len(sizes))
			continue
		}
		_, err = queuetest.TryScan(r, e.Next)
		require.Error(t, err, "entry %d at %s", i, e.Next)
		require.NotErrorIs(t, err, queue.ErrCorrupt)
		ended := make(chan error, 1)
		go func() {
			ended <- r.Tail(t.Context(), e.Next, func(e queue.Entry) error {
				assert.Fail(t, "delivered", "%v", e)
				return nil
			})
		}()
		time.Sleep(time.Minute) // an open segment may be an incomplete copy until then
		synctest.Wait()
		err = <-ended
		require.True(t, isFork(err), "entry %d at %s: %v", i, e.Next, err)
	}
}

func isFork(err error) bool {
	return errors.Is(err, queue.ErrForked) || errors.Is(err, queue.ErrDiverged)
}
