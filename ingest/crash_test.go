package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// TestDeadLettersSurviveCrashes: after a crash at any operation, every invalid line that the queue's cursor has passed is
// in the file: it is durable before the cursor.
func TestDeadLettersSurviveCrashes(t *testing.T) {
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
	fsys := vfs.NewFault(disk, crash)
	writer, err := shardset.Open("/queue", &shardset.Options{FS: fsys, Codec: "none", SegmentBytes: queue.MinSegmentBytes})
	require.NoError(t, err)
	opener, err := files.NewOpener([]string{input.path}, files.Options{Format: records.FormatNDJSON})
	require.NoError(t, err)
	from, err := opener.Open(t.Context(), nil)
	require.NoError(t, err)
	defer from.Close()
	appender := ingest.NewAppender(from, true, &ingest.CatchUp{Writer: writer}, ingest.Options{
		Parsing: []ingest.Parsing{{Fields: new(records.Fields)}}, SkipInvalid: true, DeadLetters: ingest.NewDeadLetters(fsys, "/bad/lines"),
		FlushEvery: 1 + random.IntN(20), Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	require.NoError(t, appender.Run(t.Context()))
	require.NoError(t, writer.Close())
	passed, err := checkPassed(disk, input)
	require.NoError(t, err)
	require.Equal(t, input.bad[:passed], input.bad, "all were skipped")
}

// A crash after a log was rotated, before the first record of a shard is durable: the shard would have no
// cursor, and the lines of the renamed file would not be read for it.
func TestRotationAfterCrash(t *testing.T) {
	layout := shard.Layout{Shards: 2}
	var ids [2][]string // by shard
	for n := 0; len(ids[1]) == 0 || len(ids[0]) < 500; n++ {
		of := layout.ShardString(strconv.Itoa(n))
		ids[of] = append(ids[of], strconv.Itoa(n))
	}
	lines := func(ids []string) (text []byte) {
		for _, id := range ids {
			text = fmt.Appendf(text, "{\"id\":%q,\"text\":%q}\n", id, strings.Repeat("x", 1000))
		}
		return text
	}
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, lines(ids[1][:1]), 0o600))
	opener, err := files.NewOpener([]string{log}, files.Options{Format: records.FormatNDJSON, Follow: true})
	require.NoError(t, err)
	from, err := opener.Open(t.Context(), nil)
	require.NoError(t, err)
	defer from.Close()
	require.NoError(t, os.Rename(log, log+".1"))
	require.NoError(t, os.WriteFile(log, lines(ids[0]), 0o600))

	disk, cursors := vfs.NewMem(), 0
	crash := func(vfs.Op) error {
		if t.Failed() {
			return nil
		}
		writer, err := shardset.Open("/queue", &shardset.Options{FS: disk.CrashClone(vfs.KeepAll), Layout: layout})
		if !assert.NoError(t, err) {
			return nil
		}
		defer writer.Close()
		if stored := writer.Cursors(); len(stored[0]) > 0 {
			cursors++
			assert.NotEmpty(t, stored[1])
		}
		return nil
	}
	var one sync.Mutex
	fsys := vfs.NewFault(disk, func(op vfs.Op) error {
		one.Lock()
		defer one.Unlock()
		return crash(op)
	})
	writer, err := shardset.Open("/queue", &shardset.Options{FS: fsys, Layout: layout, Codec: "none"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	appender := ingest.NewAppender(from, false, &ingest.CatchUp{Writer: writer}, ingest.Options{Appended: func(at ingest.Progress) {
		if at.Documents == 501 {
			cancel()
		}
	}})
	require.ErrorIs(t, appender.Run(ctx), ingest.ErrInterrupted)
	require.NoError(t, writer.Close())
	require.Positive(t, cursors)
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
	content, err := vfs.ReadFile(disk, "/bad/lines")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	kept := map[string]bool{}
	for text := range bytes.Lines(content) {
		var letter ingest.DeadLetter
		if json.Unmarshal(text, &letter) == nil { // not torn
			kept[letter.At] = true
		}
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
