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

// TestGolden requires the builder to produce the golden file byte for byte and the file
// to contain the keys. -update rewrites it, which is correct only together with a new
// version.
func TestGolden(t *testing.T) {
	golden := goldenFile(t)
	require.Equal(t, golden, makeGolden(), "the format has changed")
	require.True(t, requireNoFalseNegative(t, golden, goldenKeys(), "golden"))
	f := load(t, golden)
	require.False(t, mayContain(f, []byte("job-100")))
	require.False(t, mayContain(f, []byte("another")))
}

// scored returns a Manager of the golden filter with lookups of all its keys and one
// absent key.
func scored(t testing.TB) *Manager {
	f := open(t, makeGolden())
	m := NewManager(1 << 20)
	m.Track(f)
	for _, key := range goldenKeys() {
		lookUp(key, f, f)
	}
	lookUp([]byte("job-100"), nil, f)
	return m
}

func goldenScores(t testing.TB) []byte {
	name := filepath.Join("testdata", "v0.scores")
	if *update {
		require.NoError(t, os.WriteFile(name, scored(t).Scores(), 0o644))
	}
	golden, err := os.ReadFile(name)
	require.NoError(t, err)
	return golden
}

// TestGoldenScores does the same for the scores.
func TestGoldenScores(t *testing.T) {
	golden := goldenScores(t)
	require.Equal(t, golden, scored(t).Scores(), "the format has changed")
	f := open(t, goldenFile(t))
	m := NewManager(1 << 20)
	require.NoError(t, m.Restore("scores", golden))
	require.NoError(t, m.Update(f))
	require.Equal(t, []tally{{63, 1}, {3, 0}}, f.tallies)
	require.Equal(t, golden, m.Scores())
}

// TestFormatPage compares the examples in docs/format/filter.md with the golden files.
// -update rewrites them.
func TestFormatPage(t *testing.T) {
	name := filepath.Join("..", "docs", "format", "filter.md")
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	want := string(page)
	for _, example := range []struct{ mark, drawing string }{{"example", drawGolden()}, {"scores", drawScores(t)}} {
		begin, end := "<!-- "+example.mark+": begin -->\n", "<!-- "+example.mark+": end -->"
		before, rest, found := strings.Cut(want, begin)
		require.True(t, found)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found)
		want = before + begin + "```\n" + example.drawing + "```\n" + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "docs/format/filter.md: run go test ./bloom -run TestFormatPage -update")
}

// drawing prints bytes, one field per line.
type drawing struct {
	strings.Builder
	bytes []byte
	at    int
}

func (d *drawing) field(bytes int, format string, args ...any) {
	const perLine = 8
	meaning := fmt.Sprintf(format, args...)
	for first := true; first || bytes > 0; first = false {
		n := min(bytes, perLine)
		line := fmt.Sprintf("%04x  %-16s  %s", d.at, fmt.Sprintf("%x", d.bytes[d.at:d.at+n]), meaning)
		d.WriteString(strings.TrimRight(line, " ") + "\n")
		d.at, bytes, meaning = d.at+n, bytes-n, ""
	}
}

// drawScores prints the golden scores, one field per line.
func drawScores(t testing.TB) string {
	d := drawing{bytes: scored(t).Scores()}
	d.field(8, "magic %q", d.bytes[:8])
	d.field(4, "CRC-32C of the rest")
	d.field(2, "version 0")
	d.field(6, "reserved")
	d.field(4, "1 filter")
	d.WriteString("\n")
	d.field(4, "CRC-32C of the filter's index")
	d.field(4, "2 pages")
	d.field(8, "65 keys")
	d.field(4, "page 0: 63 requests")
	d.field(4, "1 miss")
	d.field(4, "page 1: 3 requests")
	d.field(4, "0 misses")
	return d.String()
}

// drawGolden prints the golden filter, one field per line.
func drawGolden() string {
	b := makeGolden()
	t := b[len(b)-trailerBytes:]
	indexBytes := int(order.Uint64(t[trailerIndexBytesAt:]))
	pagesBytes := len(b) - trailerBytes - indexBytes
	out := drawing{bytes: b}
	field := out.field
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
	field(8, "%d keys", order.Uint64(b[out.at:]))
	field(4, "%d pages", len(index.entries))
	field(4, "pages of 64 bytes, but the last")
	field(2, "%d hash functions", order.Uint16(b[out.at:]))
	field(2, "kind 1: each page a filter of bloom/v3")
	field(18, "reserved")
	field(2, "version 0")
	field(8, "magic %q", b[out.at:])
	return out.String()
}
