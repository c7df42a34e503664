package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"docstore/internal/vfs"
)

const (
	// followInterval is how often a followed file is looked at once it has been
	// read to its end, where the kernel does not tell of a change.
	followInterval = 100 * time.Millisecond
	// hintPause is how long after a hint it is looked at: others may write into
	// its directory all the time.
	hintPause = 2 * time.Millisecond
)

// lookout waits for more to come. It belongs to one goroutine.
type lookout struct {
	interval time.Duration
	watch    *vfs.Watch // nil: the kernel does not tell
}

// newLookout is for a file. What it misses, as on a network's file system, is seen
// after the interval.
func newLookout(path string, interval time.Duration) *lookout {
	watch, err := vfs.WatchDir(vfs.OS, filepath.Dir(path))
	if err != nil {
		watch = nil // looking from time to time has to do
	}
	return &lookout{interval: interval, watch: watch}
}

// wait returns when it is time to look, or with the context's error.
func (l *lookout) wait(ctx context.Context) error {
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

func (l *lookout) close() {
	if l.watch != nil {
		_ = l.watch.Close() // of a descriptor that nothing is written to
	}
}

// follower reads a file that grows. It ends where the file was replaced under
// its name or cut: what was there then has been read whole. It ends early, with
// the context's error, when that does.
type follower struct {
	ctx     context.Context
	file    *os.File
	path    string
	lookout *lookout

	offset   int64 // read up to here
	replaced bool
}

func (f *follower) Read(p []byte) (int, error) {
	for {
		n, err := f.file.Read(p)
		f.offset += int64(n)
		if n > 0 || !errors.Is(err, io.EOF) || f.replaced {
			return n, err
		}
		// Whoever has replaced the file wrote to it until then: when that is seen,
		// the file is read once more.
		if f.replaced, err = f.isReplaced(); err != nil {
			return 0, err
		}
		if !f.replaced {
			if err := f.lookout.wait(f.ctx); err != nil {
				return 0, err
			}
		}
	}
}

// isReplaced tells whether nothing will be appended to the file any more. While
// nothing has its name it may still be written to.
func (f *follower) isReplaced() (bool, error) {
	own, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return !os.SameFile(own, named) || own.Size() < f.offset, nil
}

// successor waits for the file that has taken the place of a followed one.
func (in *input) successor(ctx context.Context) (*input, error) {
	for {
		next, err := inspect(in.name, in.format)
		if err == nil {
			next.lookout = in.lookout
			return next, next.setFollow()
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err := in.lookout.wait(ctx); err != nil {
			return nil, err
		}
	}
}
