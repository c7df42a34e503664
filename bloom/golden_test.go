package bloom

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldenKeys are the keys of testdata/v0.filter, in pages of 64 bytes.
func goldenKeys() [][]byte {
	keys := [][]byte{{}}
	for i := range 64 {
		keys = append(keys, fmt.Appendf(nil, "job-%02d", i))
	}
	return keys
}

func makeGolden() []byte { return build(&Options{PageBytes: 64}, goldenKeys()) }

func goldenFile(t testing.TB) []byte {
	name := filepath.Join("testdata", "v0.filter")
	if *update {
		require.NoError(t, os.WriteFile(name, makeGolden(), 0o644))
	}
	golden, err := os.ReadFile(name)
	require.NoError(t, err)
	return golden
}

// The builder makes the golden file, byte for byte, and it has its keys. With
// -update it is written anew, which is right only when the version changes.
func TestGolden(t *testing.T) {
	golden := goldenFile(t)
	require.Equal(t, golden, makeGolden(), "the format has changed")
	require.True(t, requireNoFalseNegative(t, golden, goldenKeys(), "golden"))
	f := load(t, golden)
	require.False(t, mayContain(f, []byte("job-100")))
	require.False(t, mayContain(f, []byte("another")))
}

// The example in the format's page is the golden file. With -update it is
// written anew.
func TestFormatPage(t *testing.T) {
	name := filepath.Join("..", "docs", "format", "filter.md")
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	const begin, end = "<!-- example: begin -->\n", "<!-- example: end -->"
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + "```\n" + drawGolden() + "```\n" + end + after
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "docs/format/filter.md: run go test ./bloom -run TestFormatPage -update")
}

// drawGolden prints the golden filter a field a line.
func drawGolden() string {
	b := makeGolden()
	t := b[len(b)-trailerBytes:]
	indexBytes := int(order.Uint64(t[trailerIndexBytesAt:]))
	pagesBytes := len(b) - trailerBytes - indexBytes
	var out strings.Builder
	at := 0
	field := func(bytes int, format string, args ...any) {
		const perLine = 8
		meaning := fmt.Sprintf(format, args...)
		for first := true; first || bytes > 0; first = false {
			n := min(bytes, perLine)
			line := fmt.Sprintf("%04x  %-23s  %s", at, fmt.Sprintf("% x", b[at:at+n]), meaning)
			out.WriteString(strings.TrimRight(line, " ") + "\n")
			at, bytes, meaning = at+n, bytes-n, ""
		}
	}
	index, _, _ := decodeIndex(b[pagesBytes:len(b)-trailerBytes], trailer{
		pages: order.Uint32(t[trailerPagesAt:]), pageBytes: 64, keys: order.Uint64(t[trailerKeysAt:]),
	}, int64(pagesBytes))
	for i, e := range index.entries {
		field(int(e.bytes), "page %d: %d bits", i, 8*e.bytes)
		out.WriteString("\n")
	}
	for i, e := range index.entries {
		field(8, "page %d: offset", i)
		field(4, "bytes")
		field(4, "%d keys", e.keys)
		field(4, "CRC-32C of the page")
		field(4, "separator of %d bytes", len(index.separator(i)))
		if separator := index.separator(i); len(separator) > 0 {
			field(len(separator), "%q", separator)
		}
		out.WriteString("\n")
	}
	field(4, "CRC-32C of the 60 bytes up to the end")
	field(4, "CRC-32C of the index")
	field(8, "index of %d bytes", indexBytes)
	field(8, "%d keys", order.Uint64(b[at:]))
	field(4, "%d pages", len(index.entries))
	field(4, "pages of 64 bytes, but the last")
	field(2, "%d hash functions", order.Uint16(b[at:]))
	field(2, "kind 1: each page a filter of bloom/v3")
	field(18, "reserved")
	field(2, "version 0")
	field(8, "magic %q", b[at:])
	return out.String()
}
