package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// MakeDir makes a directory and its missing parents, durably. One that is there already
// may be so because an earlier attempt made it and then failed to sync its parent, so
// all parents are synced each time. One that this user may not read is left out: who
// may write there and not read made it so that nobody can sync it.
func MakeDir(fsys FS, dir string) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for at := filepath.Clean(dir); ; {
		parent := filepath.Dir(at)
		if parent == at { // the root, or where this process is
			return nil
		}
		if err := fsys.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		at = parent
	}
}
