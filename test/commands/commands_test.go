package commands

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
)

// postings returns documents by id, and as the input of append.
func postings(n int) (documents map[string]string, input string) {
	documents = make(map[string]string, n)
	generator := jobs.New(1)
	var lines strings.Builder
	for i := range n {
		line := string(generator.Next())
		documents[jobs.ID(i+1)] = line
		lines.WriteString(line + "\n")
	}
	return documents, lines.String()
}

// changes deletes one document in ten and replaces one in ten. It returns the input of append
// and the ids of the deleted documents.
func changes(documents map[string]string) (input string, deleted []string) {
	var lines strings.Builder
	for i, id := range ids(documents) {
		switch i % 10 {
		case 0:
			delete(documents, id)
			deleted = append(deleted, id)
			fmt.Fprintf(&lines, `{"id":%q,"_delete":true}`+"\n", id)
		case 1:
			documents[id] = fmt.Sprintf(`{"id":%q,"title":"filled"}`, id)
			lines.WriteString(documents[id] + "\n")
		}
	}
	return lines.String(), deleted
}

// ids returns the ids of generated documents in order.
func ids(documents map[string]string) []string {
	list := make([]string, len(documents))
	for i := range list {
		list[i] = jobs.ID(i + 1)
	}
	return list
}

// copySegments copies the segment files of a queue that are not in the copy, or that were
// being written, as rsync does.
func copySegments(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		target := filepath.Join(to, filepath.Base(file))
		require.NoError(t, os.WriteFile(target+".part", content, 0o600))
		require.NoError(t, os.Rename(target+".part", target))
	}
}

// TestQueueIsCopiedAndServed follows documents from append to get, through a kill of the
// daemon, replacements and deletes.
func TestQueueIsCopiedAndServed(t *testing.T) {
	t.Parallel()
	documents, input := postings(2_000)
	queue, served := filepath.Join(t.TempDir(), "queue"), t.TempDir()
	appendLines := func(lines string) {
		t.Helper()
		run(t, 0, lines, "docstore-updater", "append", "--queue", queue, "--segment-size", "64KiB", "--quiet")
		run(t, 0, "", "docstore-updater", "seal", "--queue", queue)
		copySegments(t, queue, served)
	}
	appendLines(input)
	sealed, err := filepath.Glob(filepath.Join(queue, "*.seg"))
	require.NoError(t, err)
	require.Greater(t, len(sealed), 3)
	run(t, 0, "", "docstore-updater", "check", "--queue", queue)

	d := serve(t, served)
	d.waitReady()
	d.compare(documents, "no-such-job")
	first := jobs.ID(1)
	require.Equal(t, documents[first]+"\n", run(t, 0, "", "boxcar", "get", "--servers", d.boxcar, "--collection", "jobs", first))
	d.waitDocument(first, documents[first])

	d.Kill()
	d.start()
	d.waitReady()
	d.compare(documents)

	lines, deleted := changes(documents)
	appendLines(lines)
	d.waitDocument(deleted[len(deleted)-1], "")
	d.compare(documents, deleted...)
	run(t, 1, "", "boxcar", "get", "--servers", d.boxcar, "--collection", "jobs", deleted[0])

	d.Kill()
	d.start()
	d.waitReady()
	d.compare(documents, deleted...)
	d.Stop(t)
}

// TestBucketIsServed publishes a queue to a directory and serves it from there. A rollback
// brings the deleted documents back.
func TestBucketIsServed(t *testing.T) {
	t.Parallel()
	documents, input := postings(1_000)
	queue, bucket := filepath.Join(t.TempDir(), "queue"), "file://"+t.TempDir()
	publish := func(lines string) {
		t.Helper()
		run(t, 0, lines, "docstore-updater", "append", "--queue", queue, "--publish", bucket, "--segment-size", "64KiB", "--quiet")
		run(t, 0, "", "docstore-updater", "validate", "--bucket", bucket, "--quiet")
		run(t, 0, "", "docstore-updater", "announce", "--bucket", bucket)
	}
	publish(input)
	d := serve(t, bucket)
	d.waitReady()
	d.compare(documents)

	before := maps.Clone(documents)
	lines, deleted := changes(documents)
	publish(lines)
	last := deleted[len(deleted)-1]
	d.waitDocument(last, "")
	d.compare(documents, deleted...)

	run(t, 0, "", "docstore-updater", "rollback", "--bucket", bucket, "--to", "1", "--reason", "test")
	d.waitDocument(last, before[last])
	d.compare(before)
	d.Stop(t)
}

// TestShardsAreWritten writes four shards, publishes them as one collection, and reads each
// document back from the shards. Serving them takes etcd: package test/e2e.
func TestShardsAreWritten(t *testing.T) {
	t.Parallel()
	documents, input := postings(40)
	queue, bucket := filepath.Join(t.TempDir(), "queue"), "file://"+t.TempDir()
	run(t, 0, input, "docstore-updater", "append", "--queue", queue, "--shards", "4", "--publish", bucket, "--quiet")
	run(t, 0, "", "docstore-updater", "validate", "--bucket", bucket, "--quiet")
	shards, err := filepath.Glob(filepath.Join(queue, "*", "*.seg"))
	require.NoError(t, err)
	require.Len(t, shards, 4)
	lines, deleted := changes(documents)
	run(t, 0, lines, "docstore-updater", "append", "--queue", queue, "--quiet")
	for id, document := range documents {
		require.Equal(t, document+"\n", run(t, 0, "", "docstore-updater", "get", "--queue", queue, id))
	}
	for _, id := range deleted {
		run(t, 1, "", "docstore-updater", "get", "--queue", queue, id)
	}
}
