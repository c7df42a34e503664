package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// deadQueue holds the same ids again and again, and deletes, in segments that have
// dictionaries. It returns what is live.
func deadQueue(t testing.TB, mem *vfs.Mem) (live map[string]string) {
	opts := testOptions(mem)
	opts.Codec, opts.SegmentBytes, opts.dictionaryBytes = "s2", 6000, eraseDictionaryBytes
	w := openWriter(t, opts)
	live = map[string]string{}
	for i := range 150 {
		it := item{id: fmt.Sprint(i % 40), document: posting(i), deleted: i%13 == 12}
		it.put(t, w)
		if live[it.id] = it.document; it.deleted {
			delete(live, it.id)
		}
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	return live
}

func requireLive(t *testing.T, fsys vfs.FS, live map[string]string) {
	t.Helper()
	r, err := OpenReader(queueDir, &ReaderOptions{FS: fsys})
	require.NoError(t, err)
	defer r.Close()
	index := (&follower{index: map[string]indexed{}}).follow(t, r, -1)
	require.Len(t, index.index, len(live))
	for id, want := range live {
		document, err := r.DocumentFor(nil, []byte(id), index.index[id].address)
		require.NoError(t, err)
		require.Equal(t, want, string(document))
	}
	requireSound(t, fsys)
}

// TestCompactFaults lets single operations of a compaction fail, reading ones
// too: it says so or does without, the queue is whole, and the next one ends what
// was begun.
func TestCompactFaults(t *testing.T) {
	for _, erases := range []bool{false, true} {
		t.Run(fmt.Sprint("erase=", erases), func(t *testing.T) {
			base := newMem(t)
			live := deadQueue(t, base)
			compact := func(fsys vfs.FS) (CompactReport, error) {
				return Compact(context.Background(), queueDir, &CompactOptions{
					FS: fsys, MaxDead: 0.1, DeleteOriginals: true, EraseDead: erases, dictionaryBytes: eraseDictionaryBytes,
					Now: func() time.Time { return testStart.Add(time.Hour) },
				})
			}
			whole := base.CrashClone(vfs.KeepAll)
			report, err := compact(whole)
			require.NoError(t, err)
			require.Greater(t, report.Deleted, 3)
			want, err := whole.List(queueDir)
			require.NoError(t, err)
			reported := 0
			for k := int64(1); ; k += int64(stride(1)) {
				mem := base.CrashClone(vfs.KeepAll)
				var failed vfs.OpKind
				hit := false
				_, err := compact(vfs.NewFault(mem, func(op vfs.Op) error {
					if op.N != k {
						return nil
					}
					failed, hit = op.Kind, true
					return &vfs.ShortWriteError{Bytes: op.Bytes / 2, Err: errCrash}
				}))
				if !hit {
					require.NoError(t, err)
					require.Greater(t, reported, 10)
					return
				}
				if err != nil {
					require.ErrorIs(t, err, errCrash, "operation %d, %s", k, failed)
					reported++
				} else {
					require.False(t, failed.Writes(), "operation %d, %s, was not reported", k, failed)
				}
				requireLive(t, mem, live)
				_, err = compact(mem)
				require.NoError(t, err, "operation %d, %s", k, failed)
				requireLive(t, mem, live)
				names, err := mem.List(queueDir)
				require.NoError(t, err)
				left := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, underWaySuffix) })
				require.False(t, left, "%v", names)
				if !failed.Writes() {
					continue // it may have left more to the second one
				}
				require.Len(t, names, len(want), "%v, want %v", names, want)
			}
		})
	}
}
