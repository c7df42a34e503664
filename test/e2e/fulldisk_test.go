package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
	"docstore/internal/vfs"
)

const (
	smallDiskBytes = 64 << 20
	// fullDiskDocuments need more memory than the memtable of the daemon has when its disk is
	// full.
	fullDiskDocuments = 150_000
)

// smallDisk mounts a small tmpfs. It skips the test if that is not permitted.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := mountSmall(dir, smallDiskBytes); err != nil {
		t.Skipf("no small file system can be mounted here, which takes root: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unmount(dir)) })
	return dir
}

// fillDisk creates a file that leaves the given number of bytes free. With 0 it accepts
// ENOSPC, because another process may write at the same time.
func fillDisk(t *testing.T, dir string, left int64) (ballast string) {
	t.Helper()
	free, err := vfs.OS.Free(dir)
	require.NoError(t, err)
	ballast = filepath.Join(dir, "ballast")
	err = os.WriteFile(ballast, make([]byte, free.Bytes-left), 0o600)
	if left > 0 || !errors.Is(err, syscall.ENOSPC) {
		require.NoError(t, err)
	}
	return ballast
}

func manyDocuments() (documents []document) {
	for i := range fullDiskDocuments {
		id := fmt.Sprintf("document-%06d", i)
		documents = append(documents, document{id: id, line: fmt.Appendf(nil, `{"id":%q}`, id)})
	}
	return documents
}

// TestFullDiskUnderTheIndex: the disk of the index is full. The daemon reports it, continues
// to serve the indexed documents, and reads the rest of the queue when there is space again.
func TestFullDiskUnderTheIndex(t *testing.T) {
	disk, queue := smallDisk(t), t.TempDir()
	documents := manyDocuments()
	appendAll := func(documents []document) {
		start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", "append", "--queue", queue).WaitExit(t)
	}
	appendAll(documents[:100])
	d := startDaemonWith(t, queue, filepath.Join(disk, "data"), "--memory", "16MiB")
	d.waitReady(t)
	ballast := fillDisk(t, disk, 0)
	appendAll(documents[100:])
	d.poll(t, "/readyz", func(status int, body []byte) bool {
		if status != http.StatusServiceUnavailable || !bytes.Contains(body, []byte("no space left on device")) {
			return false
		}
		var ready struct {
			Collections map[string]struct {
				Faults []struct{ Path, Reason string }
			}
		}
		require.NoError(t, json.Unmarshal(body, &ready))
		for _, fault := range ready.Collections[collectionName].Faults {
			require.True(t, strings.HasPrefix(fault.Path, disk), "the fault names a path on the full disk: %+v", fault)
		}
		return true
	})
	for _, want := range documents[:100] {
		d.waitDocument(t, want.id, want.line)
	}
	last := documents[len(documents)-1]
	d.poll(t, "/documents/"+collectionName+"/"+last.id, func(status int, _ []byte) bool {
		require.NotEqual(t, http.StatusNotFound, status, "the daemon has not read the entry")
		return status == http.StatusServiceUnavailable
	})

	require.NoError(t, os.Remove(ballast))
	d.waitReady(t)
	d.waitDocument(t, last.id, last.line)
	compareAll(t, newClient(t, d), expected(documents))
	d.Stop(t)
	start(t, nil, "docserviced", "check", "--data", filepath.Join(disk, "data")).WaitExit(t)
}

// TestFullDiskUnderTheIndexAfterRestart: the daemon starts with a full disk of the index, or without
// free inodes. Its metrics show a problem of the index and no damage, and its error names which of
// both is missing.
func TestFullDiskUnderTheIndexAfterRestart(t *testing.T) {
	const inodes = "no inode"
	for name, exhaust := range map[string]func(t *testing.T, dir string) (restore func()){
		"bytes": func(t *testing.T, dir string) func() {
			ballast := fillDisk(t, dir, 0)
			return func() { require.NoError(t, os.Remove(ballast)) }
		},
		inodes: func(t *testing.T, dir string) func() {
			ballast := filepath.Join(dir, "ballast")
			require.NoError(t, os.Mkdir(ballast, 0o755))
			for i := 0; ; i++ {
				err := os.WriteFile(filepath.Join(ballast, fmt.Sprint(i)), nil, 0o600)
				if errors.Is(err, syscall.ENOSPC) {
					return func() { require.NoError(t, os.RemoveAll(ballast)) }
				}
				require.NoError(t, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk, queue := smallDisk(t), t.TempDir()
			documents := manyDocuments()[:200]
			appendAll := func(documents []document) {
				start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", "append", "--queue", queue).WaitExit(t)
			}
			appendAll(documents[:100])
			d := startDaemonWith(t, queue, filepath.Join(disk, "data"), "--memory", "16MiB")
			d.waitReady(t)
			d.Stop(t)
			restore := exhaust(t, disk)
			appendAll(documents[100:])
			d = startDaemonWith(t, queue, filepath.Join(disk, "data"), "--memory", "16MiB")
			d.poll(t, "/metrics", func(_ int, body []byte) bool {
				require.NotContains(t, string(body), `docstore_faults{collection="`+collectionName+`",effect="tail_stopped"} 1`)
				return bytes.Contains(body, []byte(`docstore_index_problem{collection="`+collectionName+`"} 1`)) &&
					bytes.Contains(body, []byte(`docstore_faults{collection="`+collectionName+`",effect="index_unwritten"} 1`)) &&
					!bytes.Contains(body, []byte(`docstore_tail_lag_seconds{collection="`+collectionName+`"} 0`+"\n"))
			})
			d.poll(t, "/readyz", func(_ int, body []byte) bool {
				require.Equal(t, name == inodes, bytes.Contains(body, []byte("no inode")), "%s", body)
				return bytes.Contains(body, []byte("the index cannot be written"))
			})
			d.waitDocument(t, documents[99].id, documents[99].line)
			restore()
			d.waitReady(t)
			d.waitDocument(t, documents[199].id, documents[199].line)
			d.Stop(t)
		})
	}
}

// TestFullDiskUnderTheQueue: the disk of the queue is full. The updater reports it and exits;
// the flushed documents are served. The next updater resumes when there is space again.
func TestFullDiskUnderTheQueue(t *testing.T) {
	disk := smallDisk(t)
	ballast := fillDisk(t, disk, 4<<20)
	queue, input := filepath.Join(disk, "queue"), filepath.Join(t.TempDir(), "input.ndjson")
	documents := manyDocuments()
	for i := range documents { // incompressible
		documents[i].line = fmt.Appendf(nil, `{"id":%q,"hash":"%x"}`, documents[i].id, sha256.Sum256([]byte(documents[i].id)))
	}
	require.NoError(t, os.WriteFile(input, ndjson(documents), 0o600))
	args := []string{"append", "--queue", queue, "--resume", "--flush-every", "1000", "--segment-size", "1MiB", "--log-level", "DEBUG", input}
	updater := start(t, nil, "docstore-updater", args...)
	<-updater.Exited
	require.Equal(t, 1, updater.ProcessState.ExitCode())
	require.Contains(t, updater.Output.String(), "no space left on device")
	acknowledged := flushed(updater.Output.String())
	require.Positive(t, acknowledged)
	require.Less(t, acknowledged, len(documents))

	d := startDaemon(t, queue, t.TempDir())
	d.waitDocument(t, documents[acknowledged-1].id, documents[acknowledged-1].line)
	d.waitDocument(t, documents[0].id, documents[0].line)

	require.NoError(t, os.Remove(ballast))
	start(t, nil, "docstore-updater", args...).WaitExit(t)
	d.waitDocument(t, documents[len(documents)-1].id, documents[len(documents)-1].line)
	compareAll(t, newClient(t, d), expected(documents))
	require.Equal(t, string(ndjson(documents)), string(bytes.Join(dump(t, queue), nil)), "each line once")
	d.Stop(t)
}

// TestFullDiskUnderTheCopy: the disk of the copy is full. docstore-sync reports it in one
// line, once, and copies the rest when there is space again.
func TestFullDiskUnderTheCopy(t *testing.T) {
	disk, source := smallDisk(t), t.TempDir()
	target := filepath.Join(disk, "queue")
	require.NoError(t, os.Mkdir(target, 0o755))
	documents := manyDocuments()
	for i := range documents { // incompressible
		documents[i].line = fmt.Appendf(nil, `{"id":%q,"hash":"%x"}`, documents[i].id, sha256.Sum256([]byte(documents[i].id)))
	}
	appendAll := func(documents []document) {
		start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", "append", "--queue", source, "--segment-size", "1MiB").WaitExit(t)
	}
	appendAll(documents[:len(documents)/2])
	for _, test := range []struct {
		name string
		left int64
	}{{"no byte is free", 0}, {"a segment is copied in part", 1 << 20}} {
		t.Run(test.name, func(t *testing.T) {
			ballast := fillDisk(t, disk, test.left)
			sync := testprocess.Start(t, exec.Command(syncScript, "--interval", "0.05", source, target))
			sync.WaitOutput(t, "\n")
			time.Sleep(20 * testprocess.PollInterval) // several passes
			require.Equal(t, "docstore-sync: no space left on device: "+target+" has no space for the files of "+source+
				"; copying continues when there is space\n", sync.Output.String())
			require.NoError(t, os.Remove(ballast))
			sync.WaitOutput(t, "docstore-sync: copying again\n")
			sync.Stop(t)
		})
		appendAll(documents[len(documents)/2:])
	}
	testprocess.Start(t, exec.Command(syncScript, "--once", source, target)).WaitExit(t)
	require.Equal(t, dump(t, source), dump(t, target))
}
