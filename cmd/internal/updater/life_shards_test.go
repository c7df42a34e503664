package updater

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// shardedLife is a queue of four shards that is published.
type shardedLife struct {
	t                      *testing.T
	root, queue, url, work string
}

func newShardedLife(t *testing.T) *shardedLife {
	root := t.TempDir()
	return &shardedLife{t, root, filepath.Join(root, "queue"), "file://" + filepath.Join(root, "bucket"), filepath.Join(root, "work")}
}

// append writes documents; an empty one is a delete.
func (l *shardedLife) append(entries ...string) {
	l.t.Helper()
	w, err := shardset.Open(l.queue, &shardset.Options{Layout: shard.Layout{Shards: 4, Seed: 1}, Codec: "none"})
	require.NoError(l.t, err)
	for _, e := range entries {
		id, document, _ := strings.Cut(e, "=")
		require.NoError(l.t, w.Put(queue.Record{ID: []byte(id), Document: []byte(document), Delete: document == ""}))
	}
	require.NoError(l.t, w.Close())
}

// documents returns the documents of all shards.
func (l *shardedLife) documents(dir string) map[string]string {
	l.t.Helper()
	layout, err := shard.Read(vfs.OS, dir)
	require.NoError(l.t, err)
	documents := map[string]string{}
	for i := range layout.Shards {
		r, err := queue.OpenReader(layout.Dir(dir, i), nil)
		require.NoError(l.t, err)
		require.NoError(l.t, r.Scan(l.t.Context(), queue.Position{}, func(e queue.Entry) error {
			document, err := r.DocumentFor(nil, e.ID, e.Address)
			if documents[string(e.ID)] = string(document); e.Deleted {
				delete(documents, string(e.ID))
				return nil
			}
			return err
		}))
		require.NoError(l.t, r.Close())
	}
	return documents
}

func (l *shardedLife) prints(want string, args ...string) {
	l.t.Helper()
	require.Contains(l.t, ok(l.t, "", append(args, "--bucket", l.url)...).stdout, want)
}

func (l *shardedLife) fails(want string, args ...string) {
	l.t.Helper()
	r := run(l.t.Context(), nil, append(args, "--bucket", l.url)...)
	require.Equal(l.t, cli.ExitFailure, r.status, r.stdout)
	require.Contains(l.t, r.lastLine(), want)
}

func numbered(from, to int, document string) []string {
	var entries []string
	for i := from; i < to; i++ {
		entries = append(entries, fmt.Sprintf("id-%d=%s", i, document))
	}
	return entries
}

// TestLifeCycleOfShards: each command that works on a collection works on one of several shards.
func TestLifeCycleOfShards(t *testing.T) {
	l := newShardedLife(t)
	l.append(numbered(0, 20, "first")...)
	l.prints("manifest 1: 4 files, 20 documents", "publish", "--queue", l.queue, "--quiet")
	l.prints("manifest 1 has all sealed segments already", "publish", "--queue", l.queue, "--quiet")
	first := l.documents(l.queue)
	l.prints("newest: 1", "validate", "--queue", l.work, "--require-id", "id-3", "--run", "ls", "--quiet")
	require.Equal(t, first, l.documents(l.work), "what --run reads")
	l.prints("announced: 1", "announce")

	l.append("id-0=second", "id-1=", "id-30=second")
	l.prints("manifest 2: ", "publish", "--queue", l.queue, "--quiet")
	l.prints("announced, 4 shards", "manifests")
	l.prints(`"shards":4`, "manifests", "--json")
	l.prints("4 shards", "show", "2")
	l.prints("1 document added, 1 changed, 1 deleted\n", "show", "2", "--queue", l.queue)
	l.fails("no document with id \"id-1\"", "validate", "--queue", l.work, "--require-id", "id-1", "--quiet")

	// The refused manifest was never served.
	l.prints("manifests 2 to 2 discarded: the queue ends with manifest 1, without 3 entries", "discard", "--queue", l.queue)
	require.Equal(t, first, l.documents(l.queue))
	l.append(numbered(0, 5, "third")...)
	l.prints("manifest 3: ", "publish", "--queue", l.queue, "--quiet")
	l.prints("newest: 3", "validate", "--queue", l.work, "--max-deletes", "10", "--quiet")
	l.prints("canary of 3 for zone-a", "announce", "--canary", "zone-a")
	l.prints("announced: 3", "announce")
	l.prints("pinned to 1 for zone-b", "pin", "--to", "1", "--group", "zone-b")
	l.prints("announced: 3", "unpin", "--group", "zone-b")
	l.prints("pinned to 1 for all servers", "rollback", "--to", "1")

	list := filepath.Join(l.root, "undone")
	l.prints("manifest 4 equals manifest 1: 5 documents restored, 0 deleted", "revert", "--queue", l.queue, "--to", "1", "--list", list)
	content, err := os.ReadFile(list)
	require.NoError(t, err)
	require.Equal(t, 5, strings.Count(string(content), `"manifest":3,"bad":true`))
	require.Equal(t, first, l.documents(l.queue))
	names, err := os.ReadDir(l.root)
	require.NoError(t, err)
	require.Len(t, names, 4, "temporary directories are removed")
	l.prints("newest: 4", "validate", "--queue", l.work, "--quiet")
	l.prints("announced: 4", "announce")
	l.prints("retained: 1", "retain", "--to", "1")
	l.prints("2 manifests and ", "gc", "--keep", "1")
	l.prints("2 manifests, 10 files, ", "manifests", "--verify")

	restored := filepath.Join(l.root, "restored")
	l.prints("manifest 4, 4 shards, restored into "+restored, "restore", "--queue", restored, "--quiet")
	require.Equal(t, first, l.documents(restored))
	l.queue = restored
	l.append("id-40=after")
	l.prints("manifest 5: ", "publish", "--queue", l.queue, "--quiet")
	one := filepath.Join(l.root, "one")
	l.prints("manifest 1, shard 2, restored into "+one, "restore", "--queue", one, "--to", "1", "--shard", "2", "--quiet")
	require.NotEmpty(t, dump(t, one))
	l.fails("holds queue", "publish", "--queue", one)
	l.fails("has no shard 4: the collection has the shards 0 to 3", "restore", "--queue", filepath.Join(l.root, "none"), "--shard", "4")
}

// TestShardsAreLockedWhileTheyAreChanged: revert and discard refuse a queue with a writer.
func TestShardsAreLockedWhileTheyAreChanged(t *testing.T) {
	l := newShardedLife(t)
	l.append(numbered(0, 20, "first")...)
	l.prints("manifest 1: ", "publish", "--queue", l.queue, "--quiet")
	l.append(numbered(0, 20, "second")...)
	l.prints("manifest 2: ", "publish", "--queue", l.queue, "--quiet")
	l.fails("is marked as bad", "validate", "--min-documents", "1000", "--quiet")
	w, err := shardset.Open(l.queue, nil)
	require.NoError(t, err)
	l.fails("wait for it to end", "discard", "--queue", l.queue)
	l.fails("wait for it to end", "revert", "--queue", l.queue, "--to", "1")
	require.NoError(t, w.Close())
	l.prints("manifests 2 to 2 discarded", "discard", "--queue", l.queue)
}

// TestLayoutIsRefusedWithoutAGeneration: a queue with other shards needs --new-generation.
func TestLayoutIsRefusedWithoutAGeneration(t *testing.T) {
	l := newShardedLife(t)
	one := filepath.Join(l.root, "one")
	ok(t, `{"id":"a"}`, "append", "--queue", one, "--quiet")
	l.prints("manifest 1: ", "publish", "--queue", one, "--quiet")
	l.append(numbered(0, 20, "first")...)
	l.fails("or --new-generation to replace the whole collection", "publish", "--queue", l.queue, "--quiet")
	l.prints("manifest 2: 4 files", "publish", "--queue", l.queue, "--new-generation", "--quiet")
	l.prints("4 shards, generation 2", "manifests")
	l.fails("their documents cannot be compared", "show", "2", "--since", "1", "--queue", l.queue)
	l.fails("the collection has the shards 0 to 0", "restore", "--queue", filepath.Join(l.root, "none"), "--to", "1", "--shard", "1")
}

// TestAppendPublishesShards appends with --publish to shards, in small segments; then the
// ingest host is lost, and the restored queue continues.
func TestAppendPublishesShards(t *testing.T) {
	l := newShardedLife(t)
	files, want := writeFiles(t, 3, 2000)
	ok(t, "", "append", "--queue", l.queue, "--shards", "4", "--publish", l.url, "--segment-size", "64KiB", "--codec", "none", "--quiet", files[0])
	restored := filepath.Join(l.root, "restored")
	l.prints("4 shards, restored", "restore", "--queue", restored, "--quiet")
	require.Equal(t, shardLines(t, l.queue), shardLines(t, restored))
	ok(t, "", append([]string{"append", "--queue", restored, "--resume", "--publish", l.url, "--announce", "--quiet"}, files...)...)
	require.Equal(t, sortedLines(want), shardLines(t, restored))
	again := filepath.Join(l.root, "again")
	l.prints("4 shards, restored", "restore", "--queue", again, "--quiet")
	require.Equal(t, shardLines(t, restored), shardLines(t, again))
	l.failsAppend("older copy", "append", "--queue", l.queue, "--resume", "--publish", l.url, "--quiet", files[0])
	l.failsAppend("holds queue", "append", "--queue", filepath.Join(l.root, "other"), "--shards", "8", "--publish", l.url, "--quiet", files[0])
}

// failsAppend is fails for a command without --bucket.
func (l *shardedLife) failsAppend(want string, args ...string) {
	l.t.Helper()
	r := run(l.t.Context(), nil, args...)
	require.Equal(l.t, cli.ExitFailure, r.status, r.stdout)
	require.Contains(l.t, r.lastLine(), want)
}

// TestAppendAnnouncesManifestsOfShards: all shards are sealed together, and each manifest is
// announced while append runs.
func TestAppendAnnouncesManifestsOfShards(t *testing.T) {
	l := newShardedLife(t)
	r, w := io.Pipe()
	done := make(chan result)
	go func() {
		done <- run(t.Context(), r, "append", "--queue", l.queue, "--shards", "4", "--publish", l.url, "--announce", "--segment-age", "100ms", "--flush-interval", "10ms", "--quiet")
	}()
	var lines int
	announced := func() int64 {
		log, err := publish.OpenLog(t.Context(), l.bucket(), time.Now)
		require.NoError(t, err)
		record, err := log.Load(t.Context())
		require.NoError(t, err)
		if record.Announced.Number == 0 {
			return 0
		}
		m, err := publish.ReadManifest(t.Context(), l.bucket(), record.Announced)
		require.NoError(t, err)
		return m.Documents()
	}
	for range 3 {
		for range 20 {
			_, err := fmt.Fprintf(w, `{"id":"id-%d"}`+"\n", lines)
			require.NoError(t, err)
			lines++
		}
		require.Eventually(t, func() bool { return announced() == int64(lines) }, 20*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, w.Close())
	require.Equal(t, cli.ExitOK, (<-done).status)
	newest := ok(t, "", "manifests", "--bucket", l.url, "--json").stdout
	require.LessOrEqual(t, strings.Count(newest, "\n"), 5, "not a manifest for each shard")
}

func (l *shardedLife) bucket() bucket.Bucket {
	l.t.Helper()
	b, err := bucket.OpenDir(vfs.OS, strings.TrimPrefix(l.url, "file://"))
	require.NoError(l.t, err)
	return b
}

// TestAppendAnnouncesDocumentsOfShards: restore finds documents soon after they were flushed,
// in segments that are not sealed, and the restored queue continues.
func TestAppendAnnouncesDocumentsOfShards(t *testing.T) {
	l := newShardedLife(t)
	r, w := io.Pipe()
	done := make(chan result)
	go func() {
		done <- run(t.Context(), r, "append", "--queue", l.queue, "--shards", "4", "--publish", l.url, "--announce", "--flush-interval", "10ms", "--quiet")
	}()
	restored, lines := "", 0
	for round := range 3 {
		for range 20 {
			_, err := fmt.Fprintf(w, `{"id":"id-%d"}`+"\n", lines)
			require.NoError(t, err)
			lines++
		}
		attempt := 0
		require.Eventually(t, func() bool {
			restored = filepath.Join(l.root, fmt.Sprintf("restored-%d-%d", round, attempt))
			attempt++
			result := run(t.Context(), nil, "restore", "--bucket", l.url, "--queue", restored, "--quiet")
			return result.status == cli.ExitOK && len(l.documents(restored)) == lines
		}, 20*time.Second, 20*time.Millisecond)
	}
	require.LessOrEqual(t, strings.Count(ok(t, "", "manifests", "--bucket", l.url, "--json").stdout, "\n"), 2, "nothing was sealed meanwhile")
	require.NoError(t, w.Close())
	require.Equal(t, cli.ExitOK, (<-done).status)
	again := filepath.Join(l.root, "again")
	l.prints("4 shards, restored", "restore", "--queue", again, "--quiet")
	ok(t, `{"id":"more"}`, "append", "--queue", again, "--publish", l.url, "--announce", "--quiet")
	l.failsAppend("older copy", "append", "--queue", restored, "--publish", l.url, "--quiet", "/dev/null")
}
