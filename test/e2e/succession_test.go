package e2e

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testprocess"
)

// builtAnew replaces the source of a script by another queue: the second half of the
// documents, all modified, in as many segments.
func builtAnew(t *testing.T, documents []document) (r *replica, d *daemon, after []document) {
	t.Helper()
	source := t.TempDir()
	half := len(documents) / 2
	sealSegment(t, source, documents[:half])
	sealSegment(t, source, documents[half:])
	r = startReplica(t, source)
	d = startDaemon(t, r.target, t.TempDir())
	d.waitDocument(t, documents[len(documents)-1].id, documents[len(documents)-1].line)
	d.waitReady(t)

	require.NoError(t, os.RemoveAll(source))
	for _, d := range documents[half:] {
		after = append(after, document{id: d.id, line: append([]byte(`{"anew":true,`), d.line[1:]...)})
	}
	sealSegment(t, source, after[:half/2])
	return r, d, after
}

// sourceBuiltAnew replaces the source queue. The script accepts it only with --accept-queue.
// The daemon serves the old queue until it has indexed the new one.
func sourceBuiltAnew(t *testing.T) {
	documents := corpus(t)[:4_000]
	r, d, after := builtAnew(t, documents)

	// The new source is first shorter than the copy, then as long, then longer.
	r.script.WaitOutput(t, "forked: ")
	sealSegment(t, r.source, after[len(after)/2:])
	sealSegment(t, r.source, []document{{id: "only-new", line: []byte(`{"id":"only-new"}`)}})
	id := regexp.MustCompile(`--accept-queue ([0-9a-f]{32})`).FindStringSubmatch(r.script.Output.String())
	require.NotNil(t, id)
	r.stop()
	r = resumeReplica(t, r.source, r.target, "--accept-queue", "00000000000000000000000000000000")
	r.script.WaitOutput(t, "accept it with --accept-queue "+id[1])
	compareAll(t, newClient(t, d), expected(documents))
	d.waitReady(t)
	r.stop()

	// Documents of both queues are always served, first in the old version, then in the new
	// one.
	watched := watchChange(t, d, documents[len(documents)-1], after[len(after)-1])
	r = resumeReplica(t, r.source, r.target, "--accept-queue", id[1])
	r.script.WaitOutput(t, "is now a copy of the queue "+id[1])
	d.waitDocument(t, "only-new", []byte(`{"id":"only-new"}`))
	watched()
	want := expected(after)
	for _, d := range documents[:len(documents)/2] {
		want[d.id] = nil
	}
	compareAll(t, newClient(t, d), want)
	d.waitReady(t)
	for _, err := os.Stat(filepath.Join(r.target, ".replaced")); !errors.Is(err, os.ErrNotExist); _, err = os.Stat(filepath.Join(r.target, ".replaced")) {
		time.Sleep(testprocess.PollInterval)
	}

	// The script continues to copy, and the daemon serves the new queue after a restart.
	sealSegment(t, r.source, []document{{id: "later", line: []byte(`{"id":"later"}`)}})
	d.waitDocument(t, "later", []byte(`{"id":"later"}`))
	d.Stop(t)
	d.restart(t)
	d.waitReady(t)
	want["later"] = []byte(`{"id":"later"}`)
	compareAll(t, newClient(t, d), want)
	r.stop()
	d.Stop(t)
}

// watchChange continuously fetches a document that changes once. It fails on any third answer;
// the document may be unavailable while files are moved.
func watchChange(t *testing.T, d *daemon, before, after document) (stop func()) {
	t.Helper()
	client := newClient(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	wrong := ""
	running.Go(func() {
		changed := false
		for ctx.Err() == nil && wrong == "" {
			got, err := client.Get(ctx, nil, before.id)
			switch {
			case err == nil && bytes.Equal(got, after.line):
				changed = true
			case err == nil && !changed && bytes.Equal(got, before.line):
			case ctx.Err() == nil && !errors.Is(err, docservice.ErrUnavailable):
				wrong = string(got)
				if err != nil {
					wrong = err.Error()
				}
			}
			time.Sleep(time.Millisecond) // yield the CPU
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return func() {
		t.Helper()
		cancel()
		running.Wait()
		require.Empty(t, wrong, before.id)
	}
}

// TestForeignSegment gives the daemon a segment of another queue as the next one. The daemon
// continues to serve and waits for the right segment.
func TestForeignSegment(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:2_000]
	r, d, after := builtAnew(t, documents)
	r.script.WaitOutput(t, "forked: ")
	r.stop()
	sealSegment(t, r.source, after[len(after)/2:])
	sealSegment(t, r.source, []document{{id: "only-new", line: []byte(`{"id":"only-new"}`)}})
	r.plainPass(t, "--ignore-existing")
	d.poll(t, "/readyz", func(status int, body []byte) bool {
		return status == http.StatusServiceUnavailable && bytes.Contains(body, []byte("forked"))
	})
	want := expected(documents)
	delete(want, "no-such-package") // unknown at present
	compareAll(t, newClient(t, d), want)
	d.Stop(t)
}

// TestAcceptQueueInterrupted: the script resumes an interrupted exchange of queues from any
// state, and accepts no other queue than the named one.
func TestAcceptQueueInterrupted(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:400]
	source, other, target := t.TempDir(), t.TempDir(), t.TempDir()
	for i := range 4 {
		sealSegment(t, source, documents[100*i:100*i+50])
		sealSegment(t, other, documents[100*i+50:100*i+100])
	}
	once := func(source string, options ...string) (string, int) {
		cmd := exec.Command(syncScript, append(options, "--once", source, target)...)
		out, _ := cmd.CombinedOutput() // the exit status is checked
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, status := once(source)
	require.Zero(t, status, out)
	id := queueID(t, filepath.Join(other, "0000000001.seg"))

	// The state of a kill between two moves: two old files are moved away, and one new file is
	// in place.
	ready, replaced := filepath.Join(target, ".sync", "ready"), filepath.Join(target, ".replaced")
	require.NoError(t, os.CopyFS(ready, os.DirFS(other)))
	require.NoError(t, os.RemoveAll(filepath.Join(ready, "LOCK")))
	require.NoError(t, os.Mkdir(replaced, 0o755))
	for _, name := range []string{"0000000003.seg", "0000000004.seg"} {
		require.NoError(t, os.Rename(filepath.Join(target, name), filepath.Join(replaced, name)))
	}
	require.NoError(t, os.Rename(filepath.Join(ready, "0000000004.seg"), filepath.Join(target, "0000000004.seg")))
	out, status = once(other, "--accept-queue", id)
	require.Zero(t, status, out)
	requireSameSegments(t, other, target)
	requireSameSegments(t, source, replaced)
	require.NoDirExists(t, ready)

	// Exchange back: only after the daemon has deleted the previous files.
	first := queueID(t, filepath.Join(source, "0000000001.seg"))
	out, status = once(source, "--accept-queue", first)
	require.Equal(t, 1, status)
	require.Contains(t, out, "still contains the queue before")
	requireSameSegments(t, other, target)
	require.NoError(t, os.RemoveAll(replaced))
	out, status = once(source, "--accept-queue", first)
	require.Zero(t, status, out)
	requireSameSegments(t, source, target)
	requireSameSegments(t, other, replaced)
}

// TestOpenSegmentOfAnotherQueue: if the only segment is open, only its header shows that the
// source is another queue.
func TestOpenSegmentOfAnotherQueue(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:600]
	source, target := t.TempDir(), t.TempDir()
	openSegment := func(documents []document) (end func()) {
		feed, input := io.Pipe()
		updater := start(t, feed, "docstore-updater", "append", "--queue", source, "--codec", "none", "--flush-interval", "1ms")
		write(t, input, documents)
		waitOpen(t, source, documents[len(documents)-1])
		return func() {
			require.NoError(t, updater.Process.Kill())
			require.NoError(t, input.Close()) // ends the goroutine that copies to its stdin
			<-updater.Exited
		}
	}
	end := openSegment(documents[:100])
	r := resumeReplica(t, source, target)
	d := startDaemon(t, target, t.TempDir())
	d.waitDocument(t, documents[99].id, documents[99].line)
	r.stop()
	end()
	require.NoError(t, os.RemoveAll(source))
	require.NoError(t, os.Mkdir(source, 0o755))
	end = openSegment(documents[100:])
	r = resumeReplica(t, source, target)
	r.script.WaitOutput(t, "forked: ")
	r.stop()
	end()
	compareAll(t, newClient(t, d), expected(documents[:100]))
	d.Stop(t)
}

// waitOpen waits until the open segment of a directory contains a document.
func waitOpen(t *testing.T, dir string, d document) {
	t.Helper()
	for {
		content, err := os.ReadFile(filepath.Join(dir, "0000000001.open"))
		if err == nil && bytes.Contains(content, d.line) {
			return
		}
		time.Sleep(testprocess.PollInterval)
	}
}

// queueID returns the queue id in the header of a segment.
func queueID(t *testing.T, segment string) string {
	t.Helper()
	content, err := os.ReadFile(segment)
	require.NoError(t, err)
	return hex.EncodeToString(content[16:32])
}

// requireSameSegments compares the sealed segments of two directories.
func requireSameSegments(t *testing.T, want, got string) {
	t.Helper()
	require.Len(t, segments(t, got), len(segments(t, want)))
	for _, path := range segments(t, want) {
		expected, err := os.ReadFile(path)
		require.NoError(t, err)
		there, err := os.ReadFile(filepath.Join(got, filepath.Base(path)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(expected, there), path)
	}
}

// The directory of the source becomes that of another queue between two passes, as if a link or a
// mount were changed. Both have an open segment, which the script extends in place.
func TestSwappedSource(t *testing.T) {
	t.Parallel()
	root, target := t.TempDir(), t.TempDir()
	const segment = "0000000001.open"
	size := func(dir string) int64 {
		info, err := os.Stat(filepath.Join(dir, segment))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	for i, name := range []string{"one", "two"} {
		dir := filepath.Join(root, name)
		feed, input := io.Pipe()
		defer input.Close()
		start(t, feed, "docstore-updater", "append", "--queue", dir, "--codec", "none", "--flush-interval", "50ms")
		write(t, input, documentsOf(name, 100*(i+1)))
		for size(dir) < int64(100*(i+1)*len(documentsOf(name, 1)[0].line)) {
			time.Sleep(testprocess.PollInterval)
		}
	}
	link := filepath.Join(root, "source")
	require.NoError(t, os.Symlink("one", link))
	script := testprocess.Start(t, exec.Command(syncScript, "--interval", "0.1", link+"/", target))
	for size(target) < size(link) {
		time.Sleep(testprocess.PollInterval)
	}
	before, err := os.ReadFile(filepath.Join(target, segment))
	require.NoError(t, err)
	require.NoError(t, os.Symlink("two", link+".next"))
	require.NoError(t, os.Rename(link+".next", link))
	script.WaitOutput(t, "nothing is copied. Was the source rebuilt?")
	for range 20 { // passes
		after, err := os.ReadFile(filepath.Join(target, segment))
		require.NoError(t, err)
		require.Equal(t, before, after)
		time.Sleep(100 * time.Millisecond)
	}
	script.Stop(t)
	require.Equal(t, 1, strings.Count(script.Output.String(), "forked: "), script.Output.String())
	require.NotContains(t, script.Output.String(), "copying again")
}
