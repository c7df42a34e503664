package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/units"
	"docstore/internal/vfs"
	"docstore/queue"
)

// keptLines reads a dead-letter file. It omits a torn line.
func keptLines(fsys vfs.FS, path string) (lines []badLine, err error) {
	content, err := vfs.ReadFile(fsys, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for text := range bytes.Lines(content) {
		var line badLine
		if json.Unmarshal(text, &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// kept is keptLines that fails the test on an error.
func kept(t *testing.T, fsys vfs.FS, path string) []badLine {
	t.Helper()
	lines, err := keptLines(fsys, path)
	require.NoError(t, err)
	return lines
}

// An invalid line in a followed file must not stop append.
func TestFollowKeepsBadLines(t *testing.T) {
	r := newResumer(t)
	f := follow(t, r, r.file("log", a1))
	f.expect(a1)
	f.append("not JSON\n{\"no\":\"id\"}\n\xff\n" + strings.Repeat("x", maxBadText+1) + "\n" + a2 + "\n")
	f.expect(a2)
	result := f.end()
	require.Equal(t, cli.ExitOK, result.status, result.stderr)
	require.Contains(t, result.stderr, `"bad_records":4,`)
	require.Contains(t, result.stderr, `"msg":"invalid records were kept in the dead-letter file"`)

	path := filepath.Join(r.queueDir, badLinesName)
	lines := kept(t, vfs.OS, path)
	require.Len(t, lines, 4)
	for i := range lines {
		require.Equal(t, fmt.Sprintf("%s:%d", f.path, i+2), lines[i].At)
		require.NotEmpty(t, lines[i].Problem)
		require.WithinDuration(t, time.Now(), lines[i].Time, time.Hour)
	}
	require.Equal(t, []string{"not JSON", `{"no":"id"}`, ""}, []string{lines[0].Text, lines[1].Text, lines[2].Text})
	require.Equal(t, []byte{0xff}, lines[2].Base64)
	require.Equal(t, maxBadText+1, lines[3].Bytes)
	require.Len(t, lines[3].Text, maxBadText)

	// They are before the cursor: the next run does not read them.
	f = follow(t, r, f.path)
	f.append(a3 + "\n")
	f.expect(a1)
	f.expect(a2)
	f.expect(a3)
	require.Equal(t, cli.ExitOK, f.end().status)
	require.Len(t, kept(t, vfs.OS, path), 4)
}

func TestBadLinesFlag(t *testing.T) {
	dir := t.TempDir()
	input := write(t, filepath.Join(dir, "input"), a1+"\nbad\n"+a2+"\n")
	file := filepath.Join(dir, "kept")
	appendTo := func(queueDir string, flags ...string) result {
		return run(t.Context(), nil, append(append([]string{"append", "--queue", filepath.Join(dir, queueDir)}, flags...), input)...)
	}
	r := appendTo("a", "--bad-lines", file)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Equal(t, a1+"\n"+a2+"\n", dump(t, filepath.Join(dir, "a")))
	require.Len(t, kept(t, vfs.OS, file), 1)
	require.NoFileExists(t, filepath.Join(dir, "a", badLinesName))

	r = appendTo("b", "--follow", "--skip-bad=false")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), input+":2: ")
	r = appendTo("b", "--bad-lines", file, "--skip-bad=false")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.stderr, "--bad-lines contradicts --skip-bad=false")

	// A record that cannot be kept is not skipped.
	r = appendTo("c", "--bad-lines", filepath.Join(dir, "missing", "file"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "keeping invalid records in "+filepath.Join(dir, "missing", "file"))
	require.Contains(t, r.lastLine(), "choose another file with --bad-lines")
	require.Empty(t, dump(t, filepath.Join(dir, "c")))
}

// The size of the file is limited, and a torn line does not affect the next one.
func TestBadLinesAreBounded(t *testing.T) {
	disk := vfs.NewMem()
	require.NoError(t, disk.MkdirAll("/dir"))
	b := &badLines{fsys: disk, path: "/dir/bad", maxBytes: 1000}
	record := &ingest.Record{Document: []byte("text"), Problem: errors.New("bad")}
	for n := range 100 {
		require.NoError(t, b.add(time.Now(), fmt.Sprint("log:", n), record))
		require.NoError(t, b.sync())
	}
	last := 99
	for _, path := range []string{b.path, b.path + ".1"} {
		info, err := disk.Stat(path)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size, b.maxBytes)
		lines := kept(t, disk, path)
		for i := range lines {
			require.Equal(t, fmt.Sprint("log:", last-len(lines)+1+i), lines[i].At)
		}
		last -= len(lines)
	}
	require.Less(t, last, 90)

	file, err := disk.OpenAppend(b.path)
	require.NoError(t, err)
	_, err = file.Write([]byte(`{"torn`))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	before := len(kept(t, disk, b.path))
	b.maxBytes = maxBadLinesBytes
	require.NoError(t, b.add(time.Now(), "log:0", record))
	require.NoError(t, b.sync())
	require.Len(t, kept(t, disk, b.path), before+1)
}

// After a crash at any operation, every invalid line that the queue's cursor has passed is
// in the file: it is durable before the cursor.
func TestBadLinesSurviveCrashes(t *testing.T) {
	random := testseed.Rand(t)
	tally := crashtest.NewTally(t, "crashes")
	input := randomInput(t, random)
	disk := vfs.NewMem()
	require.NoError(t, vfs.MakeDir(disk, "/bad"))
	share := crashtest.Share(4, 1)
	var one sync.Mutex
	crash := func(op vfs.Op) error { // in the writer's goroutines, too
		one.Lock()
		defer one.Unlock()
		if t.Failed() || random.IntN(share) > 0 {
			return nil
		}
		for _, way := range crashtest.Ways(random) {
			tally.Case()
			_, err := checkPassed(disk.CrashClone(way.Keep), input)
			assert.NoError(t, err, "%v: %s", op, way.Name)
		}
		return nil
	}
	o := &appendOptions{
		queueDir: "/queue", format: "ndjson", idField: "id", codec: "none", controlFields: true, skipBad: true, badLines: "/bad/lines",
		flushEvery: 1 + random.IntN(20), segmentSize: units.Size(queue.MinSegmentBytes), quiet: true,
		fs: vfs.NewFault(disk, crash),
	}
	env := &cli.Env{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Now: time.Now}
	env.Log = env.NewLogger(&env.Level)
	require.NoError(t, o.run(t.Context(), env, []string{input.path}))
	passed, err := checkPassed(disk, input)
	require.NoError(t, err)
	require.Equal(t, input.bad[:passed], input.bad, "all were skipped")
}

// linesWithBad is a file of valid and invalid lines.
type linesWithBad struct {
	path string
	bad  []int64 // numbers of invalid lines, ascending
}

// randomInput makes such a file of several batches of 256 KiB, which ends with a valid line.
func randomInput(t *testing.T, random *rand.Rand) (in linesWithBad) {
	var text []byte
	for n := int64(1); len(text) < 1<<20; n++ {
		if random.IntN(5) == 0 {
			in.bad = append(in.bad, n)
			text = append(text, []string{"bad", "{}", "\xff", `{"id":""}`}[random.IntN(4)]...)
		} else {
			text = fmt.Appendf(text, `{"id":"%d","text":"%s"}`, n, strings.Repeat("x", random.IntN(20_000)))
		}
		text = append(text, '\n')
	}
	text = append(text, `{"id":"last"}`...)
	in.path = filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.WriteFile(in.path, text, 0o600))
	return in
}

// checkPassed opens the queue of a disk and returns how many invalid lines its cursor has
// passed. It fails if one of them is not in the file.
func checkPassed(disk vfs.FS, in linesWithBad) (passed int, err error) {
	writer, err := queue.OpenWriter("/queue", &queue.WriterOptions{FS: disk})
	if err != nil {
		return 0, err
	}
	stored := writer.Cursor()
	if err := writer.Close(); err != nil || len(stored) == 0 {
		return 0, err
	}
	opener, err := files.NewOpener([]string{in.path}, files.Options{Format: records.FormatNDJSON})
	if err != nil {
		return 0, err
	}
	position, err := opener.Position(stored)
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(fmt.Sprint(position), in.path+":")
	line, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, err
	}
	lines, err := keptLines(disk, "/bad/lines")
	if err != nil {
		return 0, err
	}
	kept := map[string]bool{}
	for i := range lines {
		kept[lines[i].At] = true
	}
	for _, n := range in.bad {
		if n > line {
			break
		}
		if !kept[fmt.Sprint(in.path, ":", n)] {
			return 0, fmt.Errorf("line %d is lost, the cursor is behind line %d", n, line)
		}
		passed++
	}
	return passed, nil
}
