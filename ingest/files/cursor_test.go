package files

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest/records"
	"docstore/internal/vfs"
	"docstore/queue"
)

func TestTailOfARecord(t *testing.T) {
	text := []byte(strings.Repeat("0123456789", 1000))
	for _, bytes := range []int{0, 1, tailBytes - 1, tailBytes, tailBytes + 1, len(text)} {
		record := text[:bytes]
		tail := tailOf(record)
		require.Equal(t, min(bytes, tailBytes), int(tail.Bytes))
		require.True(t, tail.isTailOf(record))
		if bytes < tailBytes {
			require.False(t, tail.isTailOf(append([]byte("x"), record...)), "a longer record with the same end")
		}
		if bytes > 0 {
			require.False(t, tail.isTailOf(append(record[:bytes-1:bytes-1], 'x')))
			require.Equal(t, bytes > tailBytes, tail.isTailOf(record[1:]))
		}
	}
	longer := sampleOf(text[len(text)-sampleBytes:])
	require.True(t, longer.isTailOf(text), "a sample of a larger tailBytes")
	require.False(t, longer.isTailOf(text[:len(text)-1]))
	require.False(t, longer.isTailOf(text[:100]))
}

func TestCursorEncoding(t *testing.T) {
	want := cursor{
		Path: "/some/where", File: vfs.FileID{Device: 1, Inode: 1 << 60}, Offset: 1 << 40, Lines: 7,
		NoNewline: true, AtEnd: true, WholeFile: true, Head: sample{1, 2}, Tail: sample{3, 4},
	}
	encoded := want.append(nil)
	got, err := parseCursor(encoded)
	require.NoError(t, err)
	require.Equal(t, want, got)

	long := want
	long.Path = "/" + strings.Repeat("x", maxCursorPath)
	encoded = long.append(nil)
	require.LessOrEqual(t, len(encoded), queue.MaxCursorBytes)
	got, err = parseCursor(encoded)
	require.NoError(t, err)
	require.Empty(t, got.Path)
	require.Equal(t, "the file with inode 1152921504606846976", got.describe())

	_, err = parseCursor([]byte("DSUC\x01"))
	require.ErrorContains(t, err, "newer")
	for _, bad := range [][]byte{{}, []byte("something else")} {
		_, err = parseCursor(bad)
		require.ErrorContains(t, err, "not written by docstore-updater")
	}
	for _, bad := range [][]byte{encoded[:len(encoded)-1], append([]byte("DSUC\x00\x80"), encoded[6:]...)} {
		_, err = parseCursor(bad)
		require.ErrorContains(t, err, "damaged")
	}
}

// FuzzCursor: a cursor that is decoded is encoded to the same bytes, unless its path is too long.
func FuzzCursor(f *testing.F) {
	c := cursor{Path: "/some/where", Offset: 1 << 40, Lines: 7, AtEnd: true, Head: sample{1, 2}, Tail: sample{3, 4}}
	f.Add(c.append(nil))
	c.Object, c.Seen = true, seen{5, 6, 7}
	f.Add(c.append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCursor(data)
		if err == nil && len(c.Path) <= maxCursorPath {
			require.Equal(t, data, c.append(nil))
		}
	})
}

// TestHashOfRecordsOfAnObject: it depends on all records, and stays unknown behind a cursor that
// has none, as those of earlier versions.
func TestHashOfRecordsOfAnObject(t *testing.T) {
	after := func(at cursor, texts ...string) uint64 {
		for i, text := range texts {
			at.moveAfter(records.Record{Text: []byte(text), Number: int64(i + 1)}, nil, sample{})
		}
		return at.File.Device
	}
	object := cursor{Object: true}
	require.Equal(t, after(object, "a", "b"), after(object, "a", "b"))
	require.NotEqual(t, after(object, "a", "b"), after(object, "c", "b"))
	require.NotEqual(t, after(object, "a", "b"), after(object, "a", "c"))
	require.Zero(t, after(cursor{Object: true, Lines: 1}, "a", "b"))
	require.Zero(t, after(cursor{}, "a"), "of a file it is the device")
}
