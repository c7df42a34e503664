package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// followInterval is how often a followed file is looked at once it has been
// read to its end.
const followInterval = 100 * time.Millisecond

// follower reads a file that grows. It ends where the file was replaced under
// its name or cut: what was there then has been read whole. It ends early, with
// the context's error, when that does.
type follower struct {
	ctx  context.Context
	file *os.File
	path string

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
			if err := wait(f.ctx, followInterval); err != nil {
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
			return next, next.setFollow()
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err := wait(ctx, followInterval); err != nil {
			return nil, err
		}
	}
}

// wait waits for some time, or until the context ends.
func wait(ctx context.Context, interval time.Duration) error {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
