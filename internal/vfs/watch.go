package vfs

import (
	"errors"
	"fmt"
)

// Watch tells that something in a directory has changed. It is a hint, by which
// one who polls may look earlier, and no promise: what other machines change on
// a network's file system, for one, it does not see.
type Watch struct {
	// C receives after files were written, made in, or renamed into the
	// directory. Changes that come before the last was received count as one.
	C     <-chan struct{}
	close func() error
}

// WatchDir watches a directory of OS until Close. Elsewhere than on Linux, and
// for any other FS, the error matches errors.ErrUnsupported; the kernel's other
// reason to refuse is that this user has too many watches.
func WatchDir(fsys FS, dir string) (*Watch, error) {
	if fsys != OS {
		return nil, fmt.Errorf("watching %s: %T: %w", dir, fsys, errors.ErrUnsupported)
	}
	return watchDir(dir)
}

// Close ends the watch. It must be called once.
func (w *Watch) Close() error { return w.close() }
