package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest"
	"docstore/ingest/records"
	"docstore/internal/testseed"
)

// readRecord is a record that was read, and its batch.
type readRecord struct {
	text, cursor string
	included     func(ingest.Position) bool
}

// readFrom reads all records behind a cursor.
func readFrom(t *testing.T, opener ingest.Opener, cursor string) (all []readRecord) {
	t.Helper()
	s, err := opener.Open(t.Context(), []byte(cursor))
	require.NoError(t, err)
	defer s.Close()
	for {
		b, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		for i, r := range b.Records {
			all = append(all, readRecord{string(r.ID) + string(r.Document), string(b.AppendCursor(nil, i)), func(p ingest.Position) bool { return b.Included(p, i) }})
		}
	}
}

// testInputs makes inputs of several formats.
func testInputs(t *testing.T) map[string][]string {
	dir := t.TempDir()
	lines := func(name string, n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `{"id":"%s-%d","x":"%s"}`+"\n\n", name, i, strings.Repeat("x", i))
		}
		return write(t, filepath.Join(dir, name), text.String())
	}
	table := write(t, filepath.Join(dir, "t.csv"), "id,x\na,1\nb,\"2\n2\"\nc,3\n")
	array := write(t, filepath.Join(dir, "a.json"), `[{"id":1},{"id":2},{"id":3}]`)
	for _, name := range []string{"docs/b/1", "docs/b/2", "docs/a", "docs/b-c"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		write(t, filepath.Join(dir, name), name)
	}
	return map[string][]string{
		"auto":  {lines("one", 30), table, lines("two", 20), array, lines("three", 1)},
		"files": {filepath.Join(dir, "docs")},
	}
}

// TestPositions: for any two cursors of a source, reading from the earlier one yields the records
// behind the later one exactly once, without those that it includes.
func TestPositions(t *testing.T) {
	random := testseed.Rand(t)
	for format, names := range testInputs(t) {
		opener, err := NewOpener(names, Options{Format: records.Format(format), Records: testParsing})
		require.NoError(t, err)
		all := readFrom(t, opener, "")
		cursors := [][]byte{nil}
		for _, r := range all {
			cursors = append(cursors, []byte(r.cursor))
		}
		for range 100 {
			i, j := random.IntN(len(cursors)), random.IntN(len(cursors))
			earliest, err := opener.Earliest([][]byte{cursors[i], cursors[j]})
			require.NoError(t, err)
			require.Equal(t, string(cursors[min(i, j)]), string(earliest))
			later, err := opener.Position(cursors[max(i, j)])
			require.NoError(t, err)
			rest := readFrom(t, opener, string(earliest))
			require.Len(t, rest, len(all)-min(i, j))
			for k, r := range rest {
				require.Equal(t, all[min(i, j)+k].text, r.text)
				require.Equal(t, min(i, j)+k < max(i, j), r.included(later), "%s: record %d, cursor %d", format, min(i, j)+k, max(i, j))
			}
		}
	}
}

// TestPositionsOfARotatedFile: the renamed file is before the one that has its name now.
func TestPositionsOfARotatedFile(t *testing.T) {
	log := write(t, filepath.Join(t.TempDir(), "log"), "{\"id\":1}\n{\"id\":2}\n")
	open := func() *Opener {
		opener, err := NewOpener([]string{log}, Options{Format: records.FormatNDJSON, Follow: true})
		require.NoError(t, err)
		return opener
	}
	next := func(s ingest.Source) (cursors []string, included func(ingest.Position, int) bool) {
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		for i := range b.Records {
			cursors = append(cursors, string(b.AppendCursor(nil, i)))
		}
		return cursors, b.Included
	}
	s, err := open().Open(t.Context(), nil)
	require.NoError(t, err)
	old, _ := next(s)
	require.NoError(t, os.Rename(log, log+".1"))
	write(t, log, "{\"id\":3}\n{\"id\":4}\n")
	recent, _ := next(s)
	require.NoError(t, s.Close())

	opener := open()
	earliest, err := opener.Earliest([][]byte{[]byte(recent[0]), []byte(old[0])})
	require.NoError(t, err)
	require.Equal(t, old[0], string(earliest))
	at, err := opener.Position([]byte(recent[0]))
	require.NoError(t, err)
	require.Equal(t, log+":1", fmt.Sprint(at))
	if s, err = opener.Open(t.Context(), earliest); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, included := next(s)
	require.True(t, included(at, 0), "the second record of the renamed file")
	_, included = next(s)
	require.True(t, included(at, 0))
	require.False(t, included(at, 1))
	require.NoError(t, os.Rename(log, log+".1"))
	write(t, log, "{\"id\":5}\n")
	_, included = next(s)
	require.False(t, included(at, 0), "the file that replaced it since")
}

// TestPositionsInRotatedFiles: for any two cursors in a log and the files that had its name before,
// reading from the earlier one yields the records behind the later one exactly once, without
// those that it includes.
func TestPositionsInRotatedFiles(t *testing.T) {
	log := write(t, filepath.Join(t.TempDir(), "log"), "{\"id\":1}\n{\"id\":2}\n")
	open := func() *Opener {
		opener, err := NewOpener([]string{log}, Options{Format: records.FormatNDJSON, Follow: true})
		require.NoError(t, err)
		return opener
	}
	read := func(cursor string, n int) (all []readRecord) { // a followed file has no end
		s, err := open().Open(t.Context(), []byte(cursor))
		require.NoError(t, err)
		defer s.Close()
		for len(all) < n {
			b, err := s.Next(t.Context())
			require.NoError(t, err)
			for i, r := range b.Records {
				all = append(all, readRecord{string(r.Document), string(b.AppendCursor(nil, i)), func(p ingest.Position) bool { return b.Included(p, i) }})
			}
		}
		return all
	}
	first := read("", 2)
	require.NoError(t, os.Rename(log, log+".2"))
	write(t, log+".1", "{\"id\":3}\n{\"id\":4}\n")
	write(t, log, "{\"id\":5}\n{\"id\":6}\n")
	all := slices.Concat(first[:1], read(first[0].cursor, 5))
	for i := range all {
		require.Equal(t, fmt.Sprintf(`{"id":%d}`, i+1), all[i].text)
	}
	for i := range all[:5] {
		rest := read(all[i].cursor, 5-i)
		for j := i; j < len(all); j++ {
			earliest, err := open().Earliest([][]byte{[]byte(all[j].cursor), []byte(all[i].cursor)})
			require.NoError(t, err)
			require.Equal(t, all[i].cursor, string(earliest))
			later, err := open().Position([]byte(all[j].cursor))
			require.NoError(t, err)
			for k, r := range rest {
				require.Equal(t, all[i+1+k].text, r.text)
				require.Equal(t, i+1+k <= j, r.included(later), "record %d, cursors %d and %d", i+1+k, i, j)
			}
		}
	}
}

// TestNextEndsWithTheContext: a pipe and a followed file wait for records until the context
// ends.
func TestNextEndsWithTheContext(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	log := write(t, filepath.Join(t.TempDir(), "log"), "{\"id\":1}\n")
	for _, name := range []string{StandardInput, log} {
		opener, err := NewOpener([]string{name}, Options{Format: records.FormatNDJSON, Follow: true, Stdin: in})
		require.NoError(t, err)
		s, err := opener.Open(t.Context(), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		if name == log {
			_, err = s.Next(ctx)
			require.NoError(t, err)
		}
		cancel()
		_, err = s.Next(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, s.Close())
	}
}
