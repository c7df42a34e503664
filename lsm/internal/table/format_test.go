package table

import (
	"bytes"
	"encoding/hex"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testStore = StoreID{0xd0, 0xc5, 0x70, 4: 0x01, 15: 0x0f}

// testEnv returns an environment in memory.
func testEnv() *Env {
	discard := func(int64) {}
	return &Env{
		FS: vfs.NewMem(), Store: testStore, Logger: slog.New(slog.DiscardHandler),
		CountIndex: discard, CountBuffer: discard, Tags: &TagLimit{Bytes: 1 << 30},
	}
}

// goldenTable writes the table of docs/format/table.md.
func goldenTable(t testing.TB) (Facts, []byte) {
	t.Helper()
	env := testEnv()
	w, err := Create(env, "table", "spool", 7, false)
	require.NoError(t, err)
	require.NoError(t, w.Add([]kv.Entry{{Key: []byte("apple"), Value: []byte("red")}}, false))
	require.NoError(t, w.Add([]kv.Entry{{Key: []byte("pear"), Tombstone: true}}, false))
	facts, err := w.Finish(11, 14)
	require.NoError(t, err)
	b, err := vfs.ReadFile(env.FS, "table")
	require.NoError(t, err)
	return facts, b
}

// goldenBlock builds an even block.
func goldenBlock() []byte {
	return buildBlock([]kv.Entry{
		{Key: []byte("apple"), Value: []byte("red")},
		{Key: []byte("lemon"), Value: []byte("yel")},
	}, false)
}

// TestGolden compares the writer's output with the files of this version, which every
// later version must read, and with the byte examples in docs/format.
func TestGolden(t *testing.T) {
	page, err := os.ReadFile("../../../docs/format/table.md")
	require.NoError(t, err)
	withoutSpaces := strings.NewReplacer(" ", "")
	_, table := goldenTable(t)
	for name, b := range map[string][]byte{"table-v0": table, "block-v0": goldenBlock()} {
		path := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.WriteFile(path, b, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, b, name)
		require.Contains(t, withoutSpaces.Replace(string(page)), withoutSpaces.Replace(hex.Dump(b)))
	}
}

// FuzzBlock reads a block as if its checksum were valid.
func FuzzBlock(f *testing.F) {
	f.Add(goldenBlock())
	_, table := goldenTable(f)
	f.Add(table[headerBytes:][:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		b, fault := parseBlock(data, 0)
		if fault != nil || b.checkEntries() != nil {
			return
		}
		for i := range b.count {
			at, found := b.search(b.key(i))
			require.True(t, found)
			require.Equal(t, i, at)
			at, _ = b.search(append(bytes.Clone(b.key(i)), 0)) // the smallest key above it
			require.Equal(t, i+1, at)
			e, ok := b.entry(i)
			require.True(t, ok)
			require.Equal(t, b.key(i), e.Key)
		}
	})
}

// FuzzTable reads a table with recomputed checksums.
func FuzzTable(f *testing.F) {
	facts, table := goldenTable(f)
	f.Add(table)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerBytes+footerBytes {
			return
		}
		facts := facts
		facts.FileBytes = uint64(len(b))
		footerAt := len(b) - footerBytes
		end := uint64(footerAt)
		for i := 2; i >= 0; i-- { // sections
			at := b[footerAt+16+i*sectionBytes:]
			offset := order.Uint64(at)
			if offset <= end {
				order.PutUint32(at[16:], checksum.Of(b[offset:end]))
				end = offset
			}
		}
		order.PutUint32(b[8:], checksum.Of(b[12:headerBytes]))
		if end >= headerBytes+blockHeaderBytes { // as one block
			if block, fault := parseBlock(b[headerBytes:end], 0); fault == nil {
				block.setChecksums(checksum.Of(b[12:headerBytes], make([]byte, 4)))
			}
		}
		order.PutUint32(b[footerAt+8:], checksum.Of(b[footerAt+12:]))
		facts.FooterCRC = order.Uint32(b[footerAt+8:])
		r := &Reader{env: testEnv(), Path: "fuzz", Facts: facts, data: b}
		if r.open() != nil {
			return
		}
		var keys [][]byte
		it := r.iterator()
		for ok := it.First(); ok; ok = it.Next() {
			keys = append(keys, bytes.Clone(it.Current().Key))
			e, found, err := r.search(r.findBlock(it.Current().Key), it.Current().Key)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, it.Current().Value, e.Value)
		}
		if it.Err() != nil {
			return
		}
		for ok := it.Last(); ok; ok = it.Prev() {
			require.Equal(t, keys[len(keys)-1], it.Current().Key)
			keys = keys[:len(keys)-1]
		}
		require.NoError(t, it.Err())
		require.Empty(t, keys)
	})
}
