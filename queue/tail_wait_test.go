package queue_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"docstore/queue"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTailWatchesDirectory: with a poll interval of an hour entries arrive at once, in
// the open segment, after a seal and in the next segment.
func TestTailWatchesDirectory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("directories are watched only on Linux")
	}
	dir := t.TempDir()
	w, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	caughtUp := make(chan queue.Position, 1)
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{
		PollInterval: time.Hour,
		OnCaughtUp: func(p queue.Position) {
			select {
			case caughtUp <- p:
			default:
			}
		},
	})
	require.NoError(t, err)
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	got, ended := make(chan string), make(chan error)
	go func() {
		ended <- r.Tail(ctx, queue.Position{}, func(e queue.Entry) error {
			got <- string(e.ID)
			return nil
		})
	}()
	<-caughtUp // it waits or will wait
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		_, err := w.Append([]byte(id), []byte("document"))
		require.NoError(t, err)
		if id == "c" {
			require.NoError(t, w.Seal())
		} else {
			require.NoError(t, w.Flush())
		}
		require.Equal(t, id, <-got)
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// TestTailPollsWithoutWatch: a kernel that refuses a watch is logged once per Reader, and
// entries are found by polling.
func TestTailPollsWithoutWatch(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("directories are watched only on Linux")
	}
	dir := filepath.Join(t.TempDir(), "queue")
	require.NoError(t, os.Mkdir(dir, 0o755))
	var logged bytes.Buffer
	waiting := make(chan struct{}, 1)
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{
		PollInterval: time.Millisecond,
		Logger:       slog.New(slog.NewTextHandler(&logged, nil)),
		OnCaughtUp: func(queue.Position) {
			select {
			case waiting <- struct{}{}:
			default:
			}
		},
	})
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, os.Remove(dir)) // a missing directory cannot be watched
	ended := make(chan error)
	tail := func(ctx context.Context) {
		ended <- r.Tail(ctx, queue.Position{}, func(queue.Entry) error { return errDone })
	}
	ctx, cancel := context.WithCancel(t.Context())
	go tail(ctx)
	<-waiting
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)

	go tail(t.Context())
	<-waiting
	w, err := queue.OpenWriter(dir, nil) // creates the directory
	require.NoError(t, err)
	_, err = w.Append([]byte("a"), nil)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-ended, errDone)
	assert.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("cannot be watched")), logged.String())
}
