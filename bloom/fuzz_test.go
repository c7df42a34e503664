package bloom

import (
	"bytes"
	"math"
	"runtime"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// FuzzOpen: for any bytes Open and Update do not panic and allocate memory in
// proportion to their input. A filter that opens has consistent statistics; with the
// golden trailer it contains the golden keys.
func FuzzOpen(f *testing.F) {
	golden := goldenFile(f)
	f.Add(golden)
	f.Add(golden[7:])
	f.Add(build(nil, nil))
	f.Add(build(&Options{PageBytes: 128}, numbered("%03d", 300)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := section(data)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		filter, err := Open("table", s)
		if err == nil {
			err = NewManager(1 << 30).Update(filter)
		}
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(32*len(data)+1<<18))
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerVersion) {
			t.Fatal(err)
		}
		if filter == nil {
			return
		}
		stats := filter.Stats()
		require.LessOrEqual(t, stats.PageBytes, int64(len(data)))
		require.LessOrEqual(t, stats.ResidentPages, stats.Pages)
		mayContain(filter, data)
		mayContain(filter, nil)
		if bytes.HasSuffix(data, golden[len(golden)-trailerBytes:]) {
			for _, key := range goldenKeys() {
				require.True(t, mayContain(filter, key), "false negative: %q", key)
			}
		}
	})
}

// FuzzBuilder: keys of any shape are found, in the page that covers them.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte("one\x01two\x01three\x01\x01"), uint8(0))
	f.Add(bytes.Repeat([]byte("a\x00b\x01"), 200), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, shift uint8) {
		keys := sorted(bytes.Split(data, []byte{1}))
		for _, key := range keys {
			if len(key) > MaxKeyBytes {
				return
			}
		}
		filter := load(t, build(&Options{PageBytes: MinPageBytes << (shift % 4), FalsePositiveRate: 0.3}, keys))
		for _, key := range keys {
			require.True(t, mayContain(filter, key), "false negative: %q", key)
		}
		require.EqualValues(t, len(keys), filter.Stats().Keys)
	})
}

// FuzzRestore: for any bytes Restore does not panic, retains no more than its input and
// leaves the ranking working.
func FuzzRestore(f *testing.F) {
	golden := goldenScores(f)
	f.Add(golden)
	f.Add(golden[:len(golden)-3])
	f.Add(NewManager(0).Scores())
	f.Fuzz(func(t *testing.T, data []byte) {
		m := NewManager(1 << 20)
		for _, b := range [][]byte{data, sealedScores(bytes.Clone(data))} {
			if err := m.Restore("scores", b); err != nil {
				require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewerVersion))
				continue
			}
			restored, _, err := decodeScores(b)
			require.NoError(t, err)
			pages := 0
			for _, tallies := range restored {
				pages += len(tallies)
			}
			require.LessOrEqual(t, pages*tallyBytes, len(b))
		}
		filter := load(t, goldenFile(t))
		m.Track(filter)
		for _, x := range usefulness(nil, filter.tallies, filter.share) {
			require.False(t, math.IsNaN(x))
		}
	})
}
