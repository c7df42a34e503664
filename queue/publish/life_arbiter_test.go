package publish_test

import (
	"path/filepath"
	"testing"
	"time"

	"docstore/internal/publishtest"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/stretchr/testify/require"
)

// TestLifeCycleWithArbiter: discard and revert make their commits in an Arbiter.
func TestLifeCycleWithArbiter(t *testing.T) {
	dir := t.TempDir()
	shared, err := bucket.OpenDir(vfs.OS, filepath.Join(dir, "bucket"))
	require.NoError(t, err)
	b := publish.WithArbiter(shared, publishtest.New().Process())
	queueDir := filepath.Join(dir, "queue")
	publishOne := func(document string) {
		t.Helper()
		w, err := queue.OpenWriter(queueDir, &queue.WriterOptions{Codec: "none"})
		require.NoError(t, err)
		_, err = w.Append([]byte("id"), []byte(document))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		p, err := publish.OpenPublisher(t.Context(), b, queueDir, nil)
		require.NoError(t, err)
		_, err = p.Publish(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
	change := func(operation func(publish.Record, publish.Ref) (publish.Record, error)) publish.Record {
		t.Helper()
		log, err := publish.OpenLog(t.Context(), b, time.Now)
		require.NoError(t, err)
		r, err := log.Update(t.Context(), func(r publish.Record) (publish.Record, error) { return operation(r, r.Head) })
		require.NoError(t, err)
		return r
	}
	publishOne("1")
	change(publish.Record.Validate)
	change(publish.Record.Announce)
	publishOne("2")
	change(publish.Record.Refuse)
	discarded, err := publish.Discard(t.Context(), b, queueDir, 0, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, discarded.Parent)
	publishOne("3")
	reverted, err := publish.Revert(t.Context(), b, queueDir, 1, nil, nil)
	require.NoError(t, err)
	require.EqualValues(t, 4, reverted.Ref.Number)
	change(publish.Record.Validate)
	require.Equal(t, reverted.Ref, change(publish.Record.Announce).Announced)
}
