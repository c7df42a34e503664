package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"docstore/internal/eof"
	"docstore/internal/vfs"
)

const (
	// followInterval is the poll interval of a followed file at its end, if the kernel does
	// not report changes.
	followInterval = 100 * time.Millisecond
	// hintPause is the pause between a notification and the check: other files in the
	// directory may change all the time.
	hintPause = 2 * time.Millisecond
)

// fileWatcher waits for changes of a file. It is used by one goroutine.
type fileWatcher struct {
	interval time.Duration
	watch    *vfs.Watch // nil: not supported
}

// newFileWatcher returns a watcher of a file. Changes that the kernel does not report, as
// on a network file system, are detected by polling.
func newFileWatcher(fsys vfs.FS, path string, interval time.Duration) *fileWatcher {
	watch, err := vfs.WatchDir(fsys, filepath.Dir(path))
	if err != nil {
		watch = nil // poll only
	}
	return &fileWatcher{interval: interval, watch: watch}
}

// wait returns when the file should be checked, or with the context's error.
func (l *fileWatcher) wait(ctx context.Context) error {
	var hints <-chan struct{}
	if l.watch != nil {
		hints = l.watch.C
	}
	timer := time.NewTimer(l.interval)
	defer timer.Stop()
	select {
	case <-hints:
		timer.Reset(min(hintPause, l.interval))
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *fileWatcher) close() {
	if l.watch != nil {
		_ = l.watch.Close() // read only
	}
}

// follower reads a growing file. It returns io.EOF when the file was replaced or truncated
// and its old content has been read completely, or the context's error.
type follower struct {
	ctx         *callerContext
	fs          vfs.FS
	file        vfs.File
	path        string
	fileWatcher *fileWatcher

	offset   int64  // read up to here
	tail     []byte // the last bytes before offset, at most tailBytes
	replaced bool
}

// newFollower returns a follower of a file that is read from its offset on.
func newFollower(ctx *callerContext, fsys vfs.FS, file vfs.File, path string, offset int64, watcher *fileWatcher) (*follower, error) {
	f := &follower{ctx: ctx, fs: fsys, file: file, path: path, offset: offset, fileWatcher: watcher, tail: make([]byte, min(offset, tailBytes))}
	_, err := file.ReadAt(f.tail, offset-int64(len(f.tail)))
	return f, err
}

func (f *follower) Read(p []byte) (int, error) {
	for {
		n, err := f.file.ReadAt(p, f.offset)
		if n > 0 && !f.continues() {
			f.replaced = true
			return 0, io.EOF
		}
		f.offset += int64(n)
		if f.tail = append(f.tail, p[:n]...); len(f.tail) > tailBytes {
			f.tail = append(f.tail[:0], f.tail[len(f.tail)-tailBytes:]...)
		}
		if n > 0 {
			return n, nil // the end of the file is not that of the input
		}
		if !eof.Is(err) || f.replaced {
			return 0, err
		}
		// The file may have been written to until it was replaced: read the rest.
		if f.replaced, err = f.isReplaced(); err != nil {
			return 0, err
		}
		if !f.replaced {
			if err := f.fileWatcher.wait(f.ctx.get()); err != nil {
				return 0, err
			}
		}
	}
}

// continues reports whether the bytes before the offset are still those that were read. If the
// file was truncated in place and has grown beyond the offset since, the bytes that were read
// now belong to its new content.
func (f *follower) continues() bool {
	now := make([]byte, len(f.tail))
	n, _ := f.file.ReadAt(now, f.offset-int64(len(now)))
	return bytes.Equal(now[:n], f.tail)
}

// isReplaced reports whether another file has the name. While no file has it, the old one
// may still be written to.
func (f *follower) isReplaced() (bool, error) {
	own, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	named, err := f.fs.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return own.ID != named.ID || own.Size < f.offset, nil
}

// nextFiles waits for the file that replaces a followed one. It returns the files that had the
// name between the two, and that file.
func (in *input) nextFiles(ctx context.Context, watcher *fileWatcher) ([]*input, error) {
	for {
		next, err := inspect(in.fs, in.name, in.format, in.encoding)
		if err == nil {
			inputs, err := between(in, in.from.File, in.modified, next.from.File)
			if err != nil {
				return nil, err
			}
			next.index = in.index
			inputs = append(inputs, next)
			for i, each := range inputs {
				each.gen = in.gen + 1 + generation(i)
			}
			return inputs, next.setFollow()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := watcher.wait(ctx); err != nil {
			return nil, err
		}
	}
}
