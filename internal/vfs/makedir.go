package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// MakeDir durably creates a directory and its missing parents. An existing directory
// may be left from an attempt that failed to sync its parent, so all parents are synced
// each time. A parent that this user may not read is skipped: it cannot be synced by
// this user.
func MakeDir(fsys FS, dir string) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for at := filepath.Clean(dir); ; {
		parent := filepath.Dir(at)
		if parent == at { // the root, or the working directory
			return nil
		}
		if err := fsys.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		at = parent
	}
}
