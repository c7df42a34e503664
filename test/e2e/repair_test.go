package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
)

// TestRepairedSourceIsFollowed damages a source that has a sound copy, repairs it, erases
// documents and appends more. The copy follows without a fault and still serves the documents
// that the source lost.
func TestRepairedSourceIsFollowed(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:900]
	source := t.TempDir()
	run := func(stdin []byte, args ...string) *testprocess.Command {
		p := start(t, bytes.NewReader(stdin), "docstore-updater", append(args, "--queue", source)...)
		p.WaitExit(t)
		return p
	}
	for i := range 3 {
		run(ndjson(documents[300*i:300*(i+1)]), "append", "--codec", "none")
	}
	copied := startReplica(t, source)
	d := startDaemon(t, copied.target, t.TempDir())
	d.waitReady(t)
	d.waitDocument(t, documents[899].id, documents[899].line)

	victim := documents[450]
	second := filepath.Join(source, "0000000002.seg")
	content, err := os.ReadFile(second)
	require.NoError(t, err)
	flip(t, content, victim.line)
	require.NoError(t, os.WriteFile(second, content, 0o644))
	copied.stop() // the damage must not be copied
	run(nil, "repair")
	require.FileExists(t, second+".damaged")
	require.FileExists(t, filepath.Join(source, "0000000002-0000000002.0001.seg"))

	// Then documents of each segment, including the last, are deleted and erased; a single
	// rewrite remains.
	deletes := []byte(`{"id":"short-lived"}` + "\n" + `{"id":"short-lived","_delete":true}` + "\n")
	for i, document := range documents {
		if i%300 < 100 {
			deletes = append(deletes, `{"id":"`+document.id+`","_delete":true}`+"\n"...)
		}
	}
	run(deletes, "append", "--codec", "none")
	again := resumeReplica(t, source, copied.target)
	d.poll(t, "/documents/"+collectionName+"/"+documents[0].id, func(status int, _ []byte) bool { return status == http.StatusNotFound })
	run(nil, "compact", "--erase-deleted-older-than", "0s", "--delete-after", "0s")
	left, err := filepath.Glob(filepath.Join(source, "*.seg"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(source, "0000000001-0000000004.0002.seg")}, left)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(copied.target, filepath.Base(left[0])))
		return err == nil
	}, 3*time.Minute, 10*time.Millisecond, "the copy is not ahead of its source")
	d.waitDocument(t, victim.id, victim.line)
	run([]byte(`{"id":"new","x":1}`+"\n"), "append", "--codec", "none")
	d.waitDocument(t, "new", []byte(`{"id":"new","x":1}`))
	for i, document := range documents {
		if i%300 >= 100 {
			d.waitDocument(t, document.id, document.line)
		}
	}
	d.poll(t, "/readyz", func(status int, _ []byte) bool { return status == http.StatusOK })
	again.stop()
	d.Stop(t)
}
