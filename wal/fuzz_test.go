package wal

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// FuzzReplay: for any bytes Replay does not panic and allocates memory in proportion to
// its input. Its result is consistent, and a log of the records found replays to the
// same records.
func FuzzReplay(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "v0.wal"))
	require.NoError(f, err)
	f.Add(golden)
	f.Add(golden[:len(golden)-3])
	f.Add(append(golden[:len(golden):len(golden)], make([]byte, 300)...))
	f.Add(newFixture(f, 10, 30, 4, 7).bytes)
	f.Fuzz(func(t *testing.T, data []byte) {
		fs := vfs.NewMem()
		writeFile(t, fs, "1.wal", data)
		opts := &Options{FS: fs}

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		result, err := Replay("1.wal", opts, func(uint64, []byte) error { return nil })
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(16*len(data)+1<<20))

		require.LessOrEqual(t, result.ValidBytes, int64(len(data)))
		switch {
		case err == nil:
			require.LessOrEqual(t, result.Synced, max(result.ValidBytes, 0))
		case !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerVersion):
			t.Fatal(err)
		}

		got, _, _ := replayAll(fs, "1.wal")
		require.Equal(t, result.Records, len(got))
		w, err := Create("2.wal", 2, &Options{FS: fs, Capacity: int64(len(data)) + CapacityFor(0)})
		require.NoError(t, err)
		for _, r := range got {
			require.NoError(t, w.Append(r.sequence, r.payload))
		}
		require.NoError(t, w.Close())
		again, _, err := replayAll(fs, "2.wal")
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
