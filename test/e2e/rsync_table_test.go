package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testprocess"
)

// rsyncRow is a way to copy a queue, or an event during the copy. The first half of the
// documents is written and served, then the event occurs, then the second half is written. No
// answer is ever wrong, a document that was served never becomes not found, and at the end all
// documents are served.
type rsyncRow struct {
	name    string
	copy    func(t *testing.T, source string) *replica
	happens func(t *testing.T, r *rsyncRun) // may be nil
	// second writes the second half; nil: through the pipe of the updater.
	second func(t *testing.T, r *rsyncRun)
	// sends limits the bytes sent per byte of the queue; 0: no limit.
	sends float64
	// test replaces the sequence above; the other fields are empty.
	test func(t *testing.T)
}

func byScript(options ...string) func(*testing.T, string) *replica {
	return func(t *testing.T, source string) *replica { return startReplica(t, source, options...) }
}

func byRsync(mode ...string) func(*testing.T, string) *replica {
	return func(t *testing.T, source string) *replica { return startPlainRsync(t, source, mode...) }
}

var rsyncRows = []rsyncRow{
	{name: "script", copy: byScript(), sends: 1.1},
	{name: "default", copy: byRsync()},
	{name: "inplace", copy: byRsync("--inplace")},
	{name: "append", copy: byRsync("--append")},
	{name: "interrupted", copy: byScript("--bwlimit", "4m"), happens: killRsyncs},
	{name: "bandwidth limited", copy: byScript("--bwlimit", "4m"), sends: 1.1},
	{name: "segment deleted", copy: byScript(), happens: deleteSegment},
	{name: "copy damaged", copy: byScript(), happens: damageCopy},
	{name: "copy of the open segment longer", copy: byScript(), happens: lengthenOpen},
	{name: "out of order", copy: byHand, second: outOfOrder},
	{name: "clocks apart", copy: byScript(), happens: setClocks, sends: 1.1},
	{name: "source restarted", copy: byScript(), happens: killUpdater, second: killAndResume, sends: 1.1},
	{name: "source rebuilt", test: sourceBuiltAnew},
	{name: "power lost at the source", test: powerLossAtSource},
	{name: "power lost at the copy", test: powerLossAtCopy(true)},
	{name: "power lost at a copy by rsync alone", test: powerLossAtCopy(false)},
}

// rsyncDocuments is the number of documents per row, in segments of 1 MiB.
const rsyncDocuments = 6_000

// rsyncRun is a row that is being run.
type rsyncRun struct {
	documents []document
	source    string
	replica   *replica
	daemon    *daemon
	updater   *testprocess.Command
	input     io.WriteCloser
}

func TestRsync(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:rsyncDocuments]
	for _, row := range rsyncRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.test != nil {
				row.test(t)
				return
			}
			row.run(t, documents)
		})
	}
}

func (row *rsyncRow) run(t *testing.T, documents []document) {
	r := &rsyncRun{documents: documents, source: t.TempDir()}
	r.replica = row.copy(t, r.source)
	r.daemon = startDaemon(t, r.replica.target, t.TempDir())
	feed, input := io.Pipe()
	r.input = input
	r.updater = start(t, feed, "docstore-updater", r.appendArgs()...)

	half := len(documents) / 2
	write(t, r.input, documents[:half])
	r.daemon.waitDocument(t, documents[half-1].id, documents[half-1].line)
	w := startWatch(t, r.daemon, documents)
	if row.happens != nil {
		row.happens(t, r)
	}
	if row.second == nil {
		write(t, r.input, documents[half:])
		require.NoError(t, r.input.Close())
		r.updater.WaitExit(t)
	} else {
		row.second(t, r)
	}
	last := documents[len(documents)-1]
	r.daemon.waitDocument(t, last.id, last.line)
	r.daemon.waitReady(t)
	for _, d := range documents { // a repaired file may still be copied
		r.daemon.waitDocument(t, d.id, d.line)
	}
	w.stop(t)
	compareAll(t, newClient(t, r.daemon), expected(documents))
	r.replica.stop()
	if row.sends > 0 {
		sent, written := r.replica.sent(t), directoryBytes(t, r.source)
		t.Logf("%d bytes written, %d sent: %.3f", written, sent, float64(sent)/float64(written))
		require.LessOrEqual(t, float64(sent), row.sends*float64(written))
	}
	r.daemon.Stop(t)
}

func (r *rsyncRun) appendArgs() []string {
	return []string{"append", "--queue", r.source, "--codec", "none", "--segment-size", "1MiB", "--flush-interval", "20ms"}
}

// segment returns the path of the copy of a segment.
func (r *rsyncRun) segment(name string) string { return filepath.Join(r.replica.target, name) }

// sealed waits for two copies of sealed segments and returns them.
func (r *rsyncRun) sealed(t *testing.T) []string {
	t.Helper()
	for {
		if copies := segments(t, r.replica.target); len(copies) >= 2 {
			return copies
		}
		time.Sleep(testprocess.PollInterval)
	}
}

// killRsyncs deletes the copy and kills rsync five times during the new copy.
func killRsyncs(t *testing.T, r *rsyncRun) {
	r.replica.stop()
	for _, name := range segments(t, r.replica.target) {
		require.NoError(t, os.Remove(name))
	}
	r.replica = resumeReplica(t, r.source, r.replica.target, "--bwlimit", "4m")
	for killed := 0; killed < 5; {
		if r.replica.killRsync(t) {
			killed++
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func deleteSegment(t *testing.T, r *rsyncRun) {
	require.NoError(t, os.Remove(r.sealed(t)[1]))
}

// damageCopy changes bytes of copies but not their size or time, which rsync does not detect.
func damageCopy(t *testing.T, r *rsyncRun) {
	for _, path := range r.sealed(t)[:2] {
		info, err := os.Stat(path)
		require.NoError(t, err)
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = file.WriteAt([]byte("damage"), info.Size()/2)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime()))
	}
}

// lengthenOpen appends garbage to the copy of the open segment, as after a power loss.
func lengthenOpen(t *testing.T, r *rsyncRun) {
	open, err := filepath.Glob(r.segment("*.open"))
	require.NoError(t, err)
	require.Len(t, open, 1)
	file, err := os.OpenFile(open[0], os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = file.Write(bytes.Repeat([]byte("garbage "), 100))
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// setClocks sets file times of the source as wrong clocks would.
func setClocks(t *testing.T, r *rsyncRun) {
	for i, name := range segments(t, r.source) {
		at := time.Date(1971+100*(i%2), 1, 1, 0, 0, 0, 0, time.UTC)
		require.NoError(t, os.Chtimes(name, at, at))
	}
}

// byHand copies the first half continuously; outOfOrder copies the rest.
func byHand(t *testing.T, source string) *replica { return startPlainRsync(t, source) }

// outOfOrder stops the copy, then copies the segments in reverse order.
func outOfOrder(t *testing.T, r *rsyncRun) {
	r.replica.stop()
	write(t, r.input, r.documents[len(r.documents)/2:])
	require.NoError(t, r.input.Close())
	r.updater.WaitExit(t)
	sealed := segments(t, r.source)
	for i := len(sealed) - 1; i >= 0; i-- {
		if _, err := os.Stat(r.segment(filepath.Base(sealed[i]))); err == nil {
			continue
		}
		install(t, r.source, r.replica.target, filepath.Base(sealed[i]), nil)
		time.Sleep(50 * time.Millisecond) // the daemon may read the directory
	}
}

func killUpdater(t *testing.T, r *rsyncRun) {
	require.NoError(t, r.updater.Process.Kill())
	require.NoError(t, r.input.Close()) // ends the goroutine that copies to its stdin
	<-r.updater.Exited
}

// killAndResume appends the second half from a file with several kills and resumes.
func killAndResume(t *testing.T, r *rsyncRun) {
	path := filepath.Join(t.TempDir(), "second.ndjson")
	require.NoError(t, os.WriteFile(path, ndjson(r.documents[len(r.documents)/2:]), 0o644))
	args := append(r.appendArgs(), "--resume", "--flush-every", "100", path)
	for i := range 5 {
		updater := start(t, nil, "docstore-updater", args...)
		time.Sleep(time.Duration(5+10*i) * time.Millisecond)
		updater.Kill()
	}
	start(t, nil, "docstore-updater", args...).WaitExit(t)
}

// watch continuously fetches random documents from a daemon.
type watch struct {
	ended   context.CancelFunc
	running sync.WaitGroup
	wrong   atomic.Pointer[string]
	asked   int
}

func startWatch(t *testing.T, d *daemon, documents []document) *watch {
	t.Helper()
	client := newClient(t, d)
	w := &watch{}
	ctx, cancel := context.WithCancel(t.Context())
	w.ended = cancel
	t.Cleanup(func() { cancel(); w.running.Wait() })
	w.running.Go(func() {
		found := make(map[string]bool)
		for ; ctx.Err() == nil; w.asked++ {
			d := documents[rand.IntN(len(documents))]
			got, err := client.Get(ctx, nil, d.id)
			wrong := ""
			switch {
			case err == nil && !bytes.Equal(got, d.line):
				wrong = d.id + ": a wrong document: " + string(got)
			case errors.Is(err, docservice.ErrNotFound) && found[d.id]:
				wrong = d.id + ": was found before and is now not found"
			}
			if wrong != "" {
				w.wrong.CompareAndSwap(nil, &wrong)
				return
			}
			if err == nil {
				found[d.id] = true
			}
			time.Sleep(time.Millisecond) // yield the CPU
		}
	})
	return w
}

func (w *watch) stop(t *testing.T) {
	t.Helper()
	w.ended()
	w.running.Wait()
	if wrong := w.wrong.Load(); wrong != nil {
		require.FailNow(t, "a wrong answer", *wrong)
	}
	require.Positive(t, w.asked)
}

// segments returns the paths of the sealed segments of a directory, in order.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	sealed, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	return sealed
}

func directoryBytes(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	for _, name := range segments(t, dir) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		bytes += info.Size()
	}
	return bytes
}
