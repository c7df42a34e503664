package vfs

import (
	"errors"
	"fmt"
)

// Watch reports changes in a directory. It is only a hint that lets a polling reader
// poll earlier: changes by other machines on a network file system are not reported,
// for example.
type Watch struct {
	// C receives after files were written, created, or renamed into the directory.
	// Several changes before a receive are reported once.
	C     <-chan struct{}
	close func() error
}

// WatchDir watches a directory of OS until Close. On other systems than Linux, and for
// other FSs, the error matches errors.ErrUnsupported. It also fails if this user has
// too many watches.
func WatchDir(fsys FS, dir string) (*Watch, error) {
	if fsys != OS {
		return nil, fmt.Errorf("watching %s: %T: %w", dir, fsys, errors.ErrUnsupported)
	}
	return watchDir(dir)
}

// Close ends the watch. It must be called once.
func (w *Watch) Close() error { return w.close() }
