package updater

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

func TestShowCountsChanges(t *testing.T) {
	l := newLifeCycle(t)
	l.publish(`{"id":"a","v":1}`)
	l.publish(`{"id":"b","v":1}`)
	l.publish(`{"id":"a","v":2}` + "\n" + `{"id":"b","_delete":true}` + "\n" + `{"id":"c","v":1}` + "\n" + `{"id":"d","v":1}`)
	l.prints("1 file, ", "show", "1")
	l.prints("since manifest 2: 1 new file of ", "show", "3")
	l.prints("2 documents added, 1 changed, 1 deleted\n", "show", "3", "--queue", l.queue)
	l.prints("1 document added, 0 changed, 0 deleted\n", "show", "2", "--queue", l.queue)
	l.prints("2 documents added, 1 changed, 0 deleted\n", "show", "3", "--since", "1", "--queue", l.queue)
	// A directory without files: they are downloaded.
	l.prints("0 documents added, 1 changed, 2 deleted\n", "show", "1", "--since", "3", "--queue", t.TempDir())
	var details manifestDetails
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "show", "3", "--bucket", l.url, "--json").stdout), &details))
	require.EqualValues(t, 3, details.Number)
	require.EqualValues(t, 2, details.Since)
	require.Equal(t, 1, details.NewFiles)
	l.fails("there is no manifest 4; the newest is 3", "show", "4")
}

func TestNewGenerationReplacesTheQueue(t *testing.T) {
	l := newLifeCycle(t)
	l.publish(`{"id":"a","v":1}` + "\n" + `{"id":"b","v":1}`)
	l.release()
	old := l.queue
	l.queue, l.text = filepath.Join(l.root, "queue-2"), ""
	write(t, l.input, `{"id":"a","v":"new"}`+"\n")
	l.failsAppend("the bucket holds queue", "append", "--queue", l.queue, "--publish", l.url, "--quiet", l.input)
	ok(t, "", "append", "--queue", l.queue, "--quiet", l.input)
	l.fails("or --new-generation to replace the whole collection", "publish", "--queue", l.queue, "--quiet")
	l.prints("manifest 2: 1 file, 1 document", "publish", "--queue", l.queue, "--quiet", "--new-generation")
	require.Regexp(t, `(?m)^ +2 .* generation 2$`, ok(t, "", "manifests", "--bucket", l.url).stdout)
	l.fails("the bucket holds queue", "publish", "--queue", old, "--quiet")

	// The directory of the validator holds the other queue; that is no fault of the manifest.
	l.fails("give a new or empty directory", "validate", "--queue", l.work, "--quiet")
	l.fails("has 1 documents, more than 10.0 % fewer than the 2 of manifest 1", "validate", "--queue", filepath.Join(l.root, "work-2"), "--max-deletes", "10", "--quiet")
	write(t, l.input, `{"id":"b","v":"new"}`+"\n")
	ok(t, "", "append", "--queue", l.queue, "--quiet", l.input)
	l.prints("manifest 3: ", "publish", "--queue", l.queue, "--quiet")
	l.prints("newest: 3", "validate", "--queue", filepath.Join(l.root, "work-2"), "--max-deletes", "10", "--quiet")
	l.prints("announced: 3", "announce")
	l.prints("0 documents added, 2 changed, 0 deleted\n", "show", "3", "--since", "1", "--queue", l.queue)

	l.fails("is of the queue before", "revert", "--queue", l.queue, "--to", "1")
	l.prints("pinned to 1 for all servers", "rollback", "--to", "1")
	restored := filepath.Join(l.root, "restored")
	ok(t, "", "restore", "--bucket", l.url, "--to", "1", "--queue", restored, "--quiet")
	require.Equal(t, documents(t, old), documents(t, restored))
}

// TestLifeCycleRefusals: each mistake has one error, which says what to do.
func TestLifeCycleRefusals(t *testing.T) {
	l := newLifeCycle(t)
	for range 4 {
		l.publish(`{"id":"a"}`)
	}
	l.release()
	l.prints("the oldest manifest is 3", "gc", "--keep", "2") // the first two are collected
	other := filepath.Join(l.root, "other")
	ok(t, `{"id":"x"}`, "append", "--queue", other, "--quiet")
	empty := "file://" + filepath.Join(l.root, "empty")
	for _, test := range []struct {
		want string
		args []string
	}{
		{"manifest 1 was collected by gc; the oldest is 3", []string{"pin", "--to", "1"}},
		{"manifest 1 was collected by gc; the oldest is 3", []string{"rollback", "--to", "1"}},
		{"manifest 1 was collected by gc; the oldest is 3", []string{"retain", "--to", "1"}},
		{"manifest 1 was collected by gc; the oldest is 3", []string{"revert", "--to", "1", "--queue", l.queue}},
		{"there is no manifest 9; the newest is 4", []string{"pin", "--to", "9"}},
		{"there is no manifest 9; the newest is 4", []string{"announce", "--to", "9"}},
		{"there is no manifest 9; the newest is 4", []string{"rollback", "--to", "9"}},
		{"there is no manifest 9; the newest is 4", []string{"discard", "--to", "9", "--queue", l.queue}},
		{"there is no manifest 9; the newest is 4", []string{"revert", "--to", "9", "--queue", l.queue}},
		{"give the directory of the queue that was published", []string{"revert", "--to", "3", "--queue", other}},
		{"give the directory of the queue that was published", []string{"discard", "--to", "4", "--queue", other}},
		{"manifest 4 is the newest: there is nothing to revert", []string{"revert", "--to", "4", "--queue", l.queue}},
		{"manifest 4 was served: use revert", []string{"discard", "--to", "4", "--queue", l.queue}},
		{"give the URL of another prefix", []string{"publish", "--queue", other}},
		{"manifest 3 is not retained", []string{"retain", "--to", "3", "--release"}},
		{"use pin or rollback to go back", []string{"announce", "--to", "3"}},
		{"give --canary GROUP", []string{"announce", "--canary", ""}},
		{"no queue in " + empty, []string{"revert", "--to", "3", "--queue", empty}},
	} {
		l.fails(test.want, test.args...)
	}
	before := l.url
	l.url = empty
	for _, args := range [][]string{{"pin", "--to", "1"}, {"validate"}, {"show", "1"}, {"manifests"}, {"gc"}, {"restore", "--queue", other}, {"revert", "--to", "1", "--queue", l.queue}, {"discard", "--queue", l.queue}} {
		l.fails("the bucket has no manifests: check the URL", args...)
	}
	l.url = before
	l.prints("announced: 4; newest: 4\n", "retain", "--to", "3")
}

// failsAppend is fails for a command without --bucket.
func (l *lifeCycle) failsAppend(want string, args ...string) {
	l.t.Helper()
	r := run(l.t.Context(), nil, args...)
	require.Equal(l.t, cli.ExitFailure, r.status, r.stdout)
	require.Contains(l.t, r.lastLine(), want)
}
