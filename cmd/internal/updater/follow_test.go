package updater

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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

// TestRotatedTwice: if a log is rotated twice while append is not running, or between two checks
// while it runs, all files that had its name are read in order. Files of earlier rotations, of
// other logs, and one that is being compressed are not read.
func TestRotatedTwice(t *testing.T) {
	r := newResumer(t)
	f := follow(t, r, r.file("app.log", a1))
	dir, hourAgo := filepath.Dir(f.path), time.Now().Add(-time.Hour)
	for _, name := range []string{"app.log.7", "app.log.old", "app-2026-11-25.log"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(c1+"\n"), 0o600))
		require.NoError(t, os.Chtimes(path, hourAgo, hourAgo))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app.log.7.gz"), []byte("in progress"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "apple.log.1"), []byte(c1+"\n"), 0o600))
	rename := func(from, to string) {
		require.NoError(t, os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)))
	}
	f.expect(a1)
	require.Equal(t, cli.ExitOK, f.end().status)
	f.append(a2 + "\n")
	rename("app.log", "app.log.1")
	f.append(a3 + "\n")
	rename("app.log.1", "app.log.2")
	rename("app.log", "app.log.1")
	f.append(b1 + "\n")

	f = follow(t, r, f.path)
	for _, want := range []string{a1, a2, a3, b1} {
		f.expect(want)
	}
	// The two renames are close together: append may see the file between them or not.
	rename("app.log", "app-2026-11-26T08.log")
	f.append(b2 + "\n")
	rename("app.log", "app-2026-11-26T09.log")
	f.append(b3 + "\n")
	f.expect(b2)
	f.expect(b3)
	require.Equal(t, cli.ExitOK, f.end().status)
}

// TestTruncatedAndRegrown: a log that is truncated in place and has grown beyond its old size
// before append looks again is read from its start.
func TestTruncatedAndRegrown(t *testing.T) {
	r := newResumer(t)
	f := follow(t, r, r.file("log", a1))
	f.expect(a1)
	// One write replaces the content: append sees the old or the new file.
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = file.WriteString(b1 + "\n" + b2 + "\n" + b3 + "\n")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	for _, want := range []string{b1, b2, b3} {
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
	require.Contains(t, result.lastLine(), "restore the file, or use --resume=false")
}

// TestFollowAfterARotatedFile: a rotated file was appended by its name, and the log was rotated
// since. append --follow reads the file between the two, or stops if it cannot tell which one
// that is.
func TestFollowAfterARotatedFile(t *testing.T) {
	for _, names := range [][3]string{{"log.2", "log.1", "log"}, {"log-20261125", "log-20261126", "log"}} {
		t.Run(names[0], func(t *testing.T) {
			r := newResumer(t)
			first := filepath.Join(r.dir, names[1])
			if names[0] != "log.2" {
				first = filepath.Join(r.dir, names[0])
			}
			require.NoError(t, os.Rename(r.file("first", a1), first))
			ok(t, "", "append", "--resume", "--queue", r.queueDir, first)
			if renamed := filepath.Join(r.dir, names[0]); renamed != first {
				require.NoError(t, os.Rename(first, renamed))
				first = renamed
			}
			require.NoError(t, os.Rename(r.file("second", a2), filepath.Join(r.dir, names[1])))
			f := follow(t, r, r.file("log", b1))
			for _, want := range []string{a1, a2, b1} {
				f.expect(want)
			}
			require.Equal(t, cli.ExitOK, f.end().status)

			again := newResumer(t)
			again.dir = r.dir // its queue is elsewhere
			ok(t, "", "append", "--resume", "--queue", again.queueDir, first)
			require.NoError(t, os.Remove(first))
			refused := run(t.Context(), nil, "append", "--follow", "--resume", "--queue", again.queueDir, f.path)
			require.Equal(t, cli.ExitFailure, refused.status)
			require.Equal(t, "docstore-updater: "+f.path+" was replaced more than once: the file that was read is no longer among the rotated ones, and "+
				filepath.Join(r.dir, names[1])+" is newer; restore the file, append those that are left by name, or read only "+f.path+" with --resume=false", refused.lastLine())
		})
	}
}
