package wal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// goldenRecords are the records of testdata/v0.wal, each as the parts of its payload.
var goldenRecords = [][][]byte{
	{[]byte("first")},
	{[]byte("key"), []byte{0, 1, 2, 0xff}, []byte("value")},
	{},
}

// makeGolden builds the contents of testdata/v0.wal: synced after the second record.
func makeGolden(t testing.TB) []byte {
	fs := vfs.NewMem()
	w, err := create("7.wal", fixtureHeader, Options{FS: fs, Capacity: 4096})
	require.NoError(t, err)
	require.NoError(t, w.Append(1, goldenRecords[0]...))
	require.NoError(t, w.Append(2, goldenRecords[1]...))
	require.NoError(t, w.Sync())
	require.NoError(t, w.Append(5, goldenRecords[2]...))
	require.NoError(t, w.Close())
	b, err := vfs.ReadFile(fs, "7.wal")
	require.NoError(t, err)
	return b
}

// TestGolden requires the writer to produce the golden file byte for byte and the
// reader to read it. -update rewrites it, which is correct only together with a new
// version.
func TestGolden(t *testing.T) {
	name := filepath.Join("testdata", "v0.wal")
	if *update {
		require.NoError(t, os.WriteFile(name, makeGolden(t), 0o644))
	}
	golden, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, golden, makeGolden(t), "the format has changed")

	got, result, err := replayBytes(t, golden)
	require.NoError(t, err)
	require.Equal(t, []record{
		{1, []byte("first")},
		{2, []byte("key\x00\x01\x02\xffvalue")},
		{5, []byte{}},
	}, got)
	require.Equal(t, Result{
		Number: 7, First: 1, Last: 5, Records: 3,
		ValidBytes: int64(len(golden)), Synced: 64 + 25 + 32,
	}, result)
}

// TestFormatPage compares the example in docs/format/wal.md with the golden file.
// -update rewrites it.
func TestFormatPage(t *testing.T) {
	name := filepath.Join("..", "docs", "format", "wal.md")
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	const begin, end = "<!-- example: begin -->\n", "<!-- example: end -->"
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + "```\n" + drawGolden(t) + "```\n" + end + after
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "docs/format/wal.md: run go test ./wal -run TestFormatPage -update")
}

// drawGolden prints the golden log, one field per line.
func drawGolden(t testing.TB) string {
	b := makeGolden(t)
	var out strings.Builder
	at := 0
	field := func(bytes int, format string, args ...any) {
		const perLine = 8
		meaning := fmt.Sprintf(format, args...)
		for first := true; first || bytes > 0; first = false {
			n := min(bytes, perLine)
			line := fmt.Sprintf("%04x  %-16s  %s", at, fmt.Sprintf("%x", b[at:at+n]), meaning)
			out.WriteString(strings.TrimRight(line, " ") + "\n")
			at, bytes, meaning = at+n, bytes-n, ""
		}
	}
	field(8, "magic %q", b[:8])
	field(4, "CRC-32C of the 52 bytes up to offset 0x40")
	field(2, "version 0")
	field(2, "kind 1: a log")
	field(8, "number 7")
	field(8, "created 2026-01-01T00:00:00.123Z, in Unix milliseconds")
	field(16, "log id")
	field(16, "reserved")
	for at < len(b) {
		out.WriteString("\n")
		length, kind := int(order.Uint32(b[at+4:])), b[at+8]
		field(4, "CRC-32C of log id and the %d bytes up to the next record", 16+length)
		field(4, "length %d", length)
		field(1, "type %d: %s", kind, map[byte]string{typeData: "a record", typeMark: "a sync mark"}[kind])
		field(3, "reserved")
		field(8, "sequence %d", order.Uint64(b[at:]))
		switch {
		case kind == typeMark:
			field(16, "log id")
			field(8, "durable below offset %#x", order.Uint64(b[at:]))
		case length > 0:
			field(length, "payload")
		}
	}
	return out.String()
}
