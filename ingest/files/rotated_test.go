package files

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/ingest/records"
	"docstore/internal/vfs"
)

func TestRotations(t *testing.T) {
	for name, want := range map[string]rotation{
		"app.log.1": {number: 1}, "app.log.12.gz": {number: 12}, "app.log-20261126": {date: "-20261126"},
		"app.log.2026-11-26T08:00Z.zst": {date: ".2026-11-26T08:00Z"}, "app-2026-11-26.log": {date: "-2026-11-26"},
		"app.1.log": {number: 1},
	} {
		got, ok := rotationOf(name, "app.log")
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
	}
	for _, name := range []string{"app.log", "app.log.old", "app.log.gz", "apple.log.1", "app-1.txt", "app.log.1.tmp", "app.log~1"} {
		_, ok := rotationOf(name, "app.log")
		require.False(t, ok, name)
	}
}

func TestCompareRotations(t *testing.T) {
	names := []string{
		"app.log.1", "app.log.2", "app.log.10", "app-2026-11-09.0.log", "app-2026-11-09.9.log", "app-2026-11-09.10.log", "app-2026-11-10.0.log.gz",
	}
	for i, a := range names {
		for j, b := range names {
			first, _ := rotationOf(a, "app.log")
			second, _ := rotationOf(b, "app.log")
			if (first.date == "") == (second.date == "") {
				require.Equal(t, cmp.Compare(i, j), first.compare(second), "%s, %s", a, b)
			}
		}
	}
}

// TestFilesBetween: the files between one that was read and the present one are found by names
// and times, or an error names the one that is missing or has no known place. Each file's content
// is its name and the minutes of its time of modification.
func TestFilesBetween(t *testing.T) {
	for name, test := range map[string]struct {
		files string // name@minute; the first was read, the last is the present one
		want  string
		err   string
	}{
		"none":                        {"app.log.1@1 app.log@2", "", ""},
		"numbers descend":             {"app.log.3@1 app.log.2@2 app.log.1@3 app.log.4@0 app.log@4", "app.log.2 app.log.1", ""},
		"a tick":                      {"app.log.3@1 app.log.2@1 app.log.1@1 app.log.4@1 app.log@1", "app.log.2 app.log.1", ""},
		"compressed":                  {"app.log.2.gz@1 app.log.1.gz@2 app.log@3", "app.log.1.gz", ""},
		"being compressed":            {"app.log.2@1 app.log.2.gz@5 app.log.1@2 app.log.1.gz@6 app.log@3", "app.log.1", ""},
		"two digits":                  {"app.log.10@1 app.log.9@2 app.log.8@2 app.log.7@2 app.log.6@2 app.log.5@2 app.log.4@2 app.log.3@2 app.log.2@2 app.log.1@2 app.log@2", "app.log.9 app.log.8 app.log.7 app.log.6 app.log.5 app.log.4 app.log.3 app.log.2 app.log.1", ""},
		"a number is missing":         {"app.log.3@1 app.log.1@2 app.log@3", "", "the file with the number 2, after app.log.3, is missing"},
		"the last one is missing":     {"app.log.2@1 app.log@3", "", "the file with the number 1, after app.log.2, is missing"},
		"numbers ascend":              {"app.log.9@3 app.log.8@2 app.log.10@4 app.log.11@5 app.log@6", "app.log.10 app.log.11", ""},
		"numbers ascend from 1":       {"app.log.1@1 app.log.2@2 app.log@3", "app.log.2", ""},
		"an ascending one is missing": {"app.log.2@2 app.log.1@1 app.log.4@4 app.log@5", "", "the file with the number 3, after app.log.2, is missing"},
		"dates":                       {"app.log-20261109@1 app.log-20261110@2 app.log-20261111@3 app.log-20261108@0 app.log@4", "app.log-20261110 app.log-20261111", ""},
		"dates with numbers":          {"app-2026-11-09.9.log@1 app-2026-11-09.10.log@2 app-2026-11-10.0.log@3 app-2026-11-09.8.log@0 app.log@4", "app-2026-11-09.10.log app-2026-11-10.0.log", ""},
		"left from another rotation":  {"app.log-20261109@5 app.log-20261110@2 app.log.1@3 app.log@6", "", ""},
		"renamed by hand":             {"app.log.old@2 app.log.1@1 app.log.offset@9 other.log.1@9 app.log@3", "", ""},
		"renamed by hand, rotated":    {"app.log.old@1 app.log.1@2 app.log@3", "", "is no longer among the rotated ones, and app.log.1 is newer"},
		"deleted, none is newer":      {"gone@2 app.log.1.gz@2 app.log@3", "", ""},
		"deleted, one is newer":       {"gone@1 app.log.2.gz@1 app.log.1.gz@2 app.log@3", "", "is no longer among the rotated ones, and app.log.1.gz is newer"},
		"rotated again meanwhile":     {"app.log.3@1 app.log.2@2 app.log@4 app.log.1@3", "app.log.2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			start := time.Now().Add(-time.Hour)
			var ids []vfs.FileID
			var read time.Time
			for i, file := range strings.Fields(test.files) {
				name, minute, _ := strings.Cut(file, "@")
				minutes, err := strconv.Atoi(minute)
				require.NoError(t, err)
				write(t, name, file+"\n")
				modified := start.Add(time.Duration(minutes) * time.Minute)
				require.NoError(t, os.Chtimes(name, modified, modified))
				info, err := vfs.OS.Stat(name)
				require.NoError(t, err)
				if ids = append(ids, info.ID); i == 0 {
					read = info.ModTime
				}
			}
			if strings.HasPrefix(test.files, "gone") {
				require.NoError(t, os.Rename("gone", filepath.Join(t.TempDir(), "gone")))
			}
			in := &input{fs: vfs.OS, name: "app.log", format: records.FormatNDJSON}
			in.from.Path = "app.log"
			inputs, err := between(in, ids[0], read, ids[len(ids)-1])
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, next := range inputs {
				got = append(got, next.name)
			}
			require.Equal(t, test.want, strings.Join(got, " "))
		})
	}
}

// TestCompressedWhileRead: a log is rotated and compressed while it is read, so that the file that
// is read has no name. If that happens again before its end is read, the next file is not skipped
// without an error.
func TestCompressedWhileRead(t *testing.T) {
	for rotations, want := range []string{"", ".1.gz is newer"} {
		log := write(t, filepath.Join(t.TempDir(), "log"), "{\"id\":1}\n")
		opener, err := NewOpener([]string{log}, Options{Format: records.FormatNDJSON, Follow: true})
		require.NoError(t, err)
		s, err := opener.Open(t.Context(), nil)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Next(t.Context())
		require.NoError(t, err)
		info, err := os.Stat(log)
		require.NoError(t, err)
		for i := range rotations + 1 {
			name := fmt.Sprintf("%s.%d.gz", log, rotations+1-i)
			write(t, name, gzipped("{\"id\":2}\n"))
			modified := info.ModTime().Add(time.Duration(i) * time.Second)
			require.NoError(t, os.Chtimes(name, modified, modified))
		}
		write(t, log+".new", "{\"id\":3}\n")
		require.NoError(t, os.Rename(log+".new", log))
		b, err := s.Next(t.Context())
		if want != "" {
			require.ErrorContains(t, err, log+" was replaced more than once: the file that was read is no longer among the rotated ones, and "+log+want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, `{"id":3}`, string(b.Records[0].Document))
	}
}
