package updater

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

// lifeCycle is a queue, its input and its bucket.
type lifeCycle struct {
	t                 *testing.T
	root, queue, url  string
	input, work, text string
}

func newLifeCycle(t *testing.T) *lifeCycle {
	root := t.TempDir()
	return &lifeCycle{
		t: t, root: root, queue: filepath.Join(root, "queue"), url: "file://" + filepath.Join(root, "bucket"),
		input: filepath.Join(root, "input"), work: filepath.Join(root, "work"),
	}
}

// publish appends a line, as --resume does, and publishes it.
func (l *lifeCycle) publish(line string) {
	l.t.Helper()
	l.text += line + "\n"
	write(l.t, l.input, l.text)
	ok(l.t, "", "append", "--queue", l.queue, "--codec", "none", "--resume", "--quiet", l.input)
	ok(l.t, "", "publish", "--queue", l.queue, "--bucket", l.url, "--quiet")
}

func (l *lifeCycle) prints(want string, args ...string) {
	l.t.Helper()
	require.Contains(l.t, ok(l.t, "", append(args, "--bucket", l.url)...).stdout, want)
}

func (l *lifeCycle) fails(want string, args ...string) {
	l.t.Helper()
	r := run(l.t.Context(), nil, append(args, "--bucket", l.url)...)
	require.Equal(l.t, cli.ExitFailure, r.status, r.stdout)
	require.Contains(l.t, r.lastLine(), want)
}

// release validates and announces the newest manifest.
func (l *lifeCycle) release() {
	l.t.Helper()
	l.prints("newest", "validate", "--queue", l.work, "--quiet")
	l.prints("announced", "announce")
}

// documents returns the newest documents of a queue.
func documents(t *testing.T, dir string) map[string]string {
	t.Helper()
	r, err := queue.OpenReader(dir, nil)
	require.NoError(t, err)
	defer r.Close()
	documents := map[string]string{}
	require.NoError(t, r.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		if e.Deleted {
			delete(documents, string(e.ID))
			return nil
		}
		document, err := r.DocumentFor(nil, e.ID, e.Address)
		documents[string(e.ID)] = string(document)
		return err
	}))
	return documents
}

func TestRevertUndoesABadManifest(t *testing.T) {
	l := newLifeCycle(t)
	l.publish(`{"id":"a","v":1}`)
	l.publish(`{"id":"b","v":1}`)
	l.release()
	l.publish(`{"id":"a","v":"bad"}`)
	l.release()
	l.prints("pinned to 2 for all servers", "rollback", "--to", "2")
	l.publish(`{"id":"c","v":"good"}`)
	l.publish(`{"id":"b","_delete":true}`)
	l.fails("nothing is announced after a rollback", "announce")

	list := filepath.Join(l.root, "undone")
	l.prints("manifest 6 equals manifest 2: 2 documents restored, 1 deleted\n2 changes of manifests that are not marked as bad, or of none, undone; append them again: see "+list,
		"revert", "--queue", l.queue, "--to", "2", "--list", list)
	lines, err := os.ReadFile(list) //nolint:gosec // a file of the test
	require.NoError(t, err)
	require.Equal(t, `{"id":"a","id_base64":"YQ==","deleted":false,"manifest":3,"bad":true}
{"id":"b","id_base64":"Yg==","deleted":true,"manifest":5,"bad":false}
{"id":"c","id_base64":"Yw==","deleted":false,"manifest":4,"bad":false}
`, string(lines))
	l.prints("announcing ends the rollback from manifest 6 on\nbad: 3 to 5\n", "validate", "--queue", l.work, "--quiet")
	l.prints("announced: 6; newest: 6\nbad: 3 to 5\n", "announce")
	restored := filepath.Join(l.root, "restored")
	ok(t, "", "restore", "--bucket", l.url, "--queue", restored, "--quiet")
	require.Equal(t, map[string]string{"a": `{"id":"a","v":1}`, "b": `{"id":"b","v":1}`}, documents(t, restored))

	l.publish(`{"id":"d","v":1}`)
	require.Equal(t, `{"id":"d","v":1}`, documents(t, l.queue)["d"], "append --resume continues after the reverted entries")
	require.NotContains(t, documents(t, l.queue), "c")
}

func TestDiscardRemovesARefusedManifest(t *testing.T) {
	l := newLifeCycle(t)
	l.publish(`{"id":"a","v":1}`)
	l.release()
	l.publish(`{"id":"a","v":"bad"}`)
	l.fails("nothing to discard", "discard", "--queue", l.queue)
	l.fails("manifest 2 of "+l.url+" is marked as bad", "validate", "--queue", l.work, "--require-id", "none", "--quiet")
	l.publish(`{"id":"b","v":1}`)
	l.prints("manifests 2 to 3 discarded: the queue ends with manifest 1, without 2 entries\n", "discard", "--queue", l.queue)
	require.Equal(t, map[string]string{"a": `{"id":"a","v":1}`}, documents(t, l.queue))
	l.fails("manifest 2 was discarded or collected already", "discard", "--queue", l.queue, "--to", "2")
	l.fails("manifest 1 was served: use revert", "discard", "--queue", l.queue, "--to", "1")

	// The cursor is that of manifest 1: the corrected input is read after its first line.
	l.text = `{"id":"a","v":1}` + "\n"
	l.publish(`{"id":"c","v":1}`)
	l.release()
	l.prints("announced: 4; newest: 4\nretained: 1\nbad: 2 to 3\n", "retain", "--to", "1")
	require.Equal(t, map[string]string{"a": `{"id":"a","v":1}`, "c": `{"id":"c","v":1}`}, documents(t, l.queue))
}
