package bloom

import (
	"bytes"
	"encoding/binary"
	"flag"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files and the examples in docs")

// randomKeys returns n distinct sorted keys of 8 bytes.
func randomKeys(random *rand.Rand, n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = binary.BigEndian.AppendUint64(nil, random.Uint64())
	}
	return sorted(keys)
}

// sorted sorts keys and removes duplicates.
func sorted(keys [][]byte) [][]byte {
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// build returns the encoded filter of sorted keys.
func build(opts *Options, keys [][]byte) []byte {
	b := NewBuilder(opts)
	for _, key := range keys {
		b.Add(key)
	}
	return b.Finish(nil)
}

// section returns a section with the given bytes at a non-zero offset of its file.
func section(data []byte) *io.SectionReader {
	const base = 100
	return io.NewSectionReader(bytes.NewReader(append(make([]byte, base), data...)), base, int64(len(data)))
}

// open opens an encoded filter with no pages in memory.
func open(t testing.TB, data []byte) *Filter {
	t.Helper()
	f, err := Open("table", section(data))
	require.NoError(t, err)
	return f
}

// load opens an encoded filter with all pages in memory.
func load(t testing.TB, data []byte) *Filter {
	t.Helper()
	f := open(t, data)
	require.NoError(t, NewManager(1<<40).Update(f))
	return f
}

func mayContain(f *Filter, key []byte) bool { return f.MayContain(HashKey(key), key) }
