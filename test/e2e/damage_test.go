package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDamagedSegment gives a daemon a segment with a wrong byte, first in a document, then in
// a table of offsets, and afterwards a correct copy.
func TestDamagedSegment(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:2_000]
	source, serving := t.TempDir(), t.TempDir()
	first := sealSegment(t, source, documents[:1_000])
	second := sealSegment(t, source, documents[1_000:])

	victim := documents[500]
	install(t, source, serving, first, func(segment []byte) { flip(t, segment, victim.line) })
	d := startDaemon(t, serving, t.TempDir())
	d.waitDocument(t, documents[999].id, documents[999].line)

	t.Run("a wrong byte in a document makes that id unavailable", func(t *testing.T) {
		d.poll(t, "/documents/"+collectionName+"/"+victim.id, func(status int, _ []byte) bool {
			return status == http.StatusServiceUnavailable
		})
		d.waitDocument(t, documents[501].id, documents[501].line)
		d.poll(t, "/readyz", func(_ int, body []byte) bool { return names(body, first) })
		d.poll(t, "/metrics", func(_ int, body []byte) bool { return names(body, first) })
		d.WaitOutput(t, first)
	})
	t.Run("a correct copy makes it available", func(t *testing.T) {
		install(t, source, serving, first, nil)
		d.waitDocument(t, victim.id, victim.line)
		d.poll(t, "/readyz", func(status int, body []byte) bool {
			return status == http.StatusOK && !names(body, first)
		})
	})

	victim = documents[1_500]
	t.Run("a wrong byte in a table stops the tail", func(t *testing.T) {
		install(t, source, serving, second, func(segment []byte) { flip(t, segment, []byte(victim.id)) })
		d.poll(t, "/readyz", func(status int, body []byte) bool {
			return status == http.StatusServiceUnavailable && names(body, second)
		})
		d.waitDocument(t, documents[0].id, documents[0].line)
		d.poll(t, "/documents/"+collectionName+"/"+victim.id, func(status int, _ []byte) bool {
			return status == http.StatusNotFound || status == http.StatusServiceUnavailable
		})
		d.WaitOutput(t, second)
	})
	t.Run("a correct copy restarts the tail", func(t *testing.T) {
		install(t, source, serving, second, nil)
		d.waitReady(t)
		for _, want := range documents {
			d.waitDocument(t, want.id, want.line)
		}
	})
	d.Stop(t)
}

// TestQueueHeldByAnother: a second writer is rejected with the process id of the first; the
// lock of a killed writer is ignored.
func TestQueueHeldByAnother(t *testing.T) {
	queue := t.TempDir()
	input, hold, err := os.Pipe()
	require.NoError(t, err)
	defer hold.Close()
	holder := start(t, input, "docstore-updater", "append", "--queue", queue, "--flush-interval", "10ms")
	_, err = hold.Write([]byte(`{"id":"1"}` + "\n"))
	require.NoError(t, err)
	d := startDaemon(t, queue, t.TempDir())
	d.waitDocument(t, "1", []byte(`{"id":"1"}`))

	second := start(t, bytes.NewReader(nil), "docstore-updater", "append", "--queue", queue)
	<-second.Exited
	require.Equal(t, 1, second.ProcessState.ExitCode())
	require.Contains(t, second.Output.String(), strconv.Itoa(holder.Process.Pid))

	holder.Kill()
	start(t, bytes.NewReader([]byte(`{"id":"2"}`+"\n")), "docstore-updater", "append", "--queue", queue).WaitExit(t)
	d.waitDocument(t, "2", []byte(`{"id":"2"}`))
	d.waitDocument(t, "1", []byte(`{"id":"1"}`))
}

// sealSegment appends the documents as one segment and returns its file name. The segment is
// uncompressed, so the test can find document bytes in it.
func sealSegment(t *testing.T, queue string, documents []document) string {
	t.Helper()
	start(t, bytes.NewReader(ndjson(documents)), "docstore-updater",
		"append", "--queue", queue, "--codec", "none").WaitExit(t)
	sealed, err := filepath.Glob(filepath.Join(queue, "*.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, sealed)
	return filepath.Base(sealed[len(sealed)-1])
}

// install copies a segment into the directory that the daemon reads, under a temporary name
// that is then renamed, like rsync. change may modify the bytes before.
func install(t *testing.T, source, target, segment string, damage func([]byte)) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(source, segment))
	require.NoError(t, err)
	if damage != nil {
		damage(content)
	}
	temporary := filepath.Join(target, "."+segment+".incoming")
	require.NoError(t, os.WriteFile(temporary, content, 0o644))
	require.NoError(t, os.Rename(temporary, filepath.Join(target, segment)))
}

// flip changes one bit in the middle of the first occurrence of the bytes.
func flip(t *testing.T, segment, holds []byte) {
	t.Helper()
	at := bytes.Index(segment, holds)
	require.GreaterOrEqual(t, at, 0)
	segment[at+len(holds)/2] ^= 1
}

func names(body []byte, segment string) bool { return bytes.Contains(body, []byte(segment)) }
