package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testprocess"
)

// documentsOf generates documents with a common id prefix, all of the same length.
func documentsOf(prefix string, count int) []document {
	documents := make([]document, count)
	for i := range documents {
		id := fmt.Sprintf("%s-%04d", prefix, i)
		documents[i] = document{id: id, line: fmt.Appendf(nil, `{"id":%q,"title":"Lift operator"}`, id)}
	}
	return documents
}

// syncOnce runs one pass of docstore-sync.
func syncOnce(t *testing.T, source, target string, options ...string) (output string, status int) {
	t.Helper()
	cmd := exec.Command(syncScript, append(options, "--once", source, target)...)
	out, _ := cmd.CombinedOutput() // the exit status is checked
	return string(out), cmd.ProcessState.ExitCode()
}

// waitNotReady waits until /readyz returns 503 and its body contains the text.
func (d *daemon) waitNotReady(t *testing.T, text string) {
	t.Helper()
	d.poll(t, "/readyz", func(status int, body []byte) bool {
		return status == http.StatusServiceUnavailable && bytes.Contains(body, []byte(text))
	})
}

// requireHonest fetches existing documents from one daemon: each is either correct or
// unavailable.
func (d *daemon) requireHonest(t *testing.T, documents []document) (found int) {
	t.Helper()
	client := newClient(t, d)
	for _, document := range documents {
		got, err := client.Get(t.Context(), nil, document.id)
		if err == nil {
			require.Equal(t, string(document.line), string(got))
			found++
			continue
		}
		require.ErrorIs(t, err, docservice.ErrUnavailable, document.id)
	}
	return found
}

// TestSourceRestoredFromAnOlderCopy appends to a source that was restored from a copy of three
// segments, so that it has the same number of segments as before, of the same sizes. The
// script refuses to copy it. After a copy by plain rsync the daemon is not ready, also after
// restarts, and never answers "not found". It continues when the right files are back, and
// serves the other history after its index is deleted.
func TestSourceRestoredFromAnOlderCopy(t *testing.T) {
	t.Parallel()
	source, backup, target, data := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	var common, before, after []document
	for i := range 3 {
		documents := documentsOf(fmt.Sprint("common-", i), 100)
		common = append(common, documents...)
		sealSegment(t, source, documents)
	}
	require.NoError(t, os.CopyFS(backup, os.DirFS(source)))
	for i := range 3 {
		documents := documentsOf(fmt.Sprint("before-", i), 100)
		before = append(before, documents...)
		sealSegment(t, source, documents)
	}
	out, status := syncOnce(t, source, target)
	require.Zero(t, status, out)
	d := startDaemon(t, target, data)
	d.waitReady(t)
	require.Equal(t, 600, d.requireHonest(t, append(append([]document{}, common...), before...)))

	for i := range 3 {
		documents := documentsOf(fmt.Sprint("afters-", i), 100) // of the same length as before
		after = append(after, documents...)
		sealSegment(t, backup, documents)
	}
	out, status = syncOnce(t, backup, target)
	require.Equal(t, 1, status)
	require.Contains(t, out, "forked: ")
	requireSameSegments(t, source, target)
	d.waitReady(t)
	require.Equal(t, 300, d.requireHonest(t, before))

	// An operator copies with plain rsync.
	plain := &replica{source: backup, target: target}
	plain.plainPass(t, "--ignore-times")
	appended := documentsOf("fourth", 100)
	sealSegment(t, backup, appended)
	plain.plainPass(t)
	d.waitNotReady(t, "another history")
	for range 2 {
		require.Equal(t, 300, d.requireHonest(t, common))
		d.requireHonest(t, after)
		d.requireHonest(t, appended)
		d.Kill()
		d.restart(t)
		d.waitNotReady(t, "another history")
	}

	plain.source = source
	require.NoError(t, os.Remove(filepath.Join(target, "0000000007.seg")))
	plain.plainPass(t, "--ignore-times")
	d.waitReady(t)
	require.Equal(t, 300, d.requireHonest(t, before))

	plain.source = backup
	plain.plainPass(t, "--ignore-times")
	d.waitNotReady(t, "another history")
	d.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(data, collectionName)))
	d.restart(t)
	d.waitReady(t)
	want := expected(append(append(append([]document{}, common...), after...), appended...))
	for _, document := range before {
		want[document.id] = nil
	}
	compareAll(t, newClient(t, d), want)
	d.Stop(t)
}

// TestNewestSegmentRemovedByHand: the updater refuses to reuse the number of a deleted
// segment. After docstore-updater truncate it continues, the script copies its segments, and
// the daemon rebuilds its index without the truncated entries.
func TestNewestSegmentRemovedByHand(t *testing.T) {
	t.Parallel()
	source, target, data := t.TempDir(), t.TempDir(), t.TempDir()
	kept, bad := documentsOf("kept", 200), documentsOf("bad", 100)
	sealSegment(t, source, kept[:100])
	sealSegment(t, source, kept[100:])
	sealSegment(t, source, append(bad, document{id: kept[0].id, line: []byte(`{"id":"kept-0000","bad":true}`)}))
	out, status := syncOnce(t, source, target)
	require.Zero(t, status, out)
	d := startDaemon(t, target, data)
	d.waitReady(t)
	d.waitDocument(t, kept[0].id, []byte(`{"id":"kept-0000","bad":true}`))

	require.NoError(t, os.Remove(filepath.Join(source, "0000000003.seg")))
	better := documentsOf("better", 100)
	refused := start(t, bytes.NewReader(ndjson(better)), "docstore-updater", "append", "--queue", source)
	<-refused.Exited
	require.Equal(t, 1, refused.ProcessState.ExitCode())
	require.Contains(t, refused.Output.String(), "docstore-updater truncate")

	start(t, nil, "docstore-updater", "truncate", "--queue", source, "--to", "2").WaitExit(t)
	sealSegment(t, source, better)
	want := expected(append(append([]document{}, kept...), better...))
	for _, document := range bad {
		want[document.id] = nil
	}
	d.restartIn(t, func() {
		out, status = syncOnce(t, source, target)
		require.Zero(t, status, out)
	})
	d.waitDocument(t, kept[0].id, kept[0].line)
	d.waitReady(t)
	compareAll(t, newClient(t, d), want)
	d.Stop(t)
	d.restart(t)
	d.waitReady(t)
	compareAll(t, newClient(t, d), want)

	// Repeat with a new copy, and with a daemon that never indexed the truncated entries.
	fresh := t.TempDir()
	out, status = syncOnce(t, source, fresh)
	require.Zero(t, status, out)
	another := startDaemon(t, fresh, t.TempDir())
	another.waitReady(t)
	compareAll(t, newClient(t, another), want)
	another.Stop(t)
	d.Stop(t)
}

// restartIn kills the daemon immediately after a change of its queue, and restarts it.
func (d *daemon) restartIn(t *testing.T, do func()) {
	t.Helper()
	do()
	d.Kill()
	d.restart(t)
}

// TestNewMachineBeforeItsCopyIsComplete starts the script and the daemon with empty
// directories. Until a document is copied it is unavailable, never "not found"; also across a
// restart.
func TestNewMachineBeforeItsCopyIsComplete(t *testing.T) {
	t.Parallel()
	source, data := t.TempDir(), t.TempDir()
	documents := corpus(t)[:6_000]
	start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", "append", "--queue", source, "--codec", "none", "--segment-size", "256KiB").WaitExit(t)
	target := t.TempDir()
	d := startDaemon(t, target, data)
	r := resumeReplica(t, source, target, "--bwlimit", "4m")
	watched := watchExisting(t, d, documents)
	for len(segments(t, target)) < 5 {
		time.Sleep(testprocess.PollInterval)
	}
	d.Kill()
	d.restart(t)
	d.waitReady(t)
	require.Len(t, segments(t, target), len(segments(t, source)), "ready although segments are missing")
	watched()
	compareAll(t, newClient(t, d), expected(documents))
	r.stop()
	d.Stop(t)

	// A machine that returns knows from its index that the copy is incomplete, and is not
	// ready.
	require.NoError(t, os.Remove(segments(t, target)[len(segments(t, target))-1]))
	require.NoError(t, os.RemoveAll(filepath.Join(data, collectionName)))
	d.restart(t)
	d.waitNotReady(t, "has not been read to its end")
	require.Positive(t, d.requireHonest(t, documents[:100]))
	require.Zero(t, d.requireHonest(t, documents[len(documents)-1:]))
	r = resumeReplica(t, source, target)
	d.waitReady(t)
	compareAll(t, newClient(t, d), expected(documents))
	r.stop()
	d.Stop(t)
}

// watchExisting continuously fetches documents that exist at the source, over HTTP, which
// works across restarts of the daemon. "Not found" fails the test.
func watchExisting(t *testing.T, d *daemon, documents []document) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	wrong := ""
	running.Go(func() {
		for i := 0; ctx.Err() == nil && wrong == ""; i = (i + 7919) % len(documents) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.http+"/documents/"+collectionName+"/"+documents[i].id, nil)
			if err != nil {
				wrong = err.Error()
				return
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				continue // it is not running
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			time.Sleep(time.Millisecond) // yield the CPU
			if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
				wrong = documents[i].id + ": " + response.Status
			}
		}
	})
	stop := func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return func() {
		t.Helper()
		stop()
		require.Empty(t, wrong)
	}
}
