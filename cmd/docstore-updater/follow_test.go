package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

// following is a running append --follow with a reader of its queue.
type following struct {
	*testing.T
	resumer *resumer
	path    string
	stop    context.CancelFunc
	ended   chan result
	reader  *queue.Reader
	at      queue.Position
}

func follow(t *testing.T, r *resumer, path string) *following {
	require.NoError(t, os.MkdirAll(r.queueDir, 0o700)) // the reader may start first
	ctx, stop := context.WithCancel(t.Context())
	f := &following{T: t, resumer: r, path: path, stop: stop, ended: make(chan result, 1)}
	go func() {
		f.ended <- run(ctx, nil, "append", "--follow", "--resume", "--queue", r.queueDir, "--flush-interval", "1ms", path)
	}()
	return f
}

// expect waits for the next document in the queue, and compares it.
func (f *following) expect(want string) {
	f.Helper()
	if f.reader == nil {
		var err error
		f.reader, err = queue.OpenReader(f.resumer.queueDir, &queue.ReaderOptions{PollInterval: time.Millisecond})
		require.NoError(f, err)
		f.Cleanup(func() { require.NoError(f, f.reader.Close()) })
	}
	found := errors.New("found")
	require.ErrorIs(f, f.reader.Tail(f.Context(), f.at, func(e queue.Entry) error {
		document, err := f.reader.DocumentFor(nil, e.ID, e.Address)
		require.NoError(f, err)
		require.Equal(f, want, string(document))
		f.at = e.Next
		return found
	}), found)
}

func (f *following) end() result {
	f.stop()
	return <-f.ended
}

func (f *following) append(text string) {
	f.Helper()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(f, err)
	_, err = file.WriteString(text)
	require.NoError(f, err)
	require.NoError(f, file.Close())
}

func TestFollow(t *testing.T) {
	r := newResumer(t)
	f := follow(t, r, r.file("log", a1))
	f.expect(a1)
	f.append(a2[:5])
	f.append(a2[5:] + "\n")
	f.expect(a2)

	// Rotated: the rest of the old file is read before the new one.
	f.append(a3 + "\n")
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	const long = b1 + "   " // longer than its replacement below
	f.append(long + "\n")
	f.expect(a3)
	f.expect(long)

	// Truncated, as by copytruncate: it is read from the start.
	require.NoError(t, os.Truncate(f.path, 0))
	f.append(c1)
	f.append("\n")
	f.expect(c1)
	result := f.end()
	require.Equal(t, cli.ExitOK, result.status, result.stderr)

	f = follow(t, r, f.path)
	f.append(b2 + "\n")
	f.expect(a1) // a new reader begins at the start of the queue
	for _, want := range []string{a2, a3, long, c1, b2} {
		f.expect(want)
	}
	require.Equal(t, cli.ExitOK, f.end().status)
}

// TestRotatedWhileStopped: a file that was renamed while append was not running is found
// next to the new one.
func TestRotatedWhileStopped(t *testing.T) {
	r := newResumer(t)
	f := follow(t, r, r.file("log", a1))
	f.expect(a1)
	require.Equal(t, cli.ExitOK, f.end().status)
	f.append(a2 + "\n")
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	f.append(b1 + "\n")

	f = follow(t, r, f.path)
	for _, want := range []string{a1, a2, b1} {
		f.expect(want)
	}
	require.Equal(t, cli.ExitOK, f.end().status)

	require.NoError(t, os.Remove(f.path))
	f.append(b2 + "\n")
	result := run(t.Context(), nil, "append", "--follow", "--resume", "--queue", r.queueDir, f.path)
	require.Equal(t, cli.ExitFailure, result.status)
	require.Contains(t, result.lastLine(), "restore the file, or omit --resume")
}
