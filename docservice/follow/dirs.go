package follow

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/internal/vfs"
)

// StateDir returns the directory of the docservice.Collection that is served from the
// directory of a Follower, or dir itself if it is not one.
func StateDir(dir string) (string, error) {
	c, found, err := readCurrent(vfs.OS, dir)
	if err != nil || !found {
		return dir, err
	}
	f := &Follower{dir: dir}
	return f.statePath(c.State), nil
}

// CheckpointIndex is docservice.CheckpointIndex for a directory of a Follower or of a
// collection. A Follower that opens target fetches the files of the queue.
func CheckpointIndex(dir, target string, logger *slog.Logger) error {
	c, found, err := readCurrent(vfs.OS, dir)
	if err != nil {
		return err
	}
	if !found {
		return docservice.CheckpointIndex(dir, target, logger)
	}
	if err := vfs.MakeDir(vfs.OS, target); err != nil {
		return err
	}
	from, to := &Follower{dir: dir}, &Follower{dir: target, fs: vfs.OS}
	if err := docservice.CheckpointIndex(from.statePath(c.State), to.statePath(c.State), logger); err != nil {
		return err
	}
	return to.save(c)
}

// readCurrent reads the file CURRENT of a directory, if there is one.
func readCurrent(fsys vfs.FS, dir string) (c current, found bool, err error) {
	content, err := readFile(fsys, filepath.Join(dir, currentName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return current{}, false, nil
	case err == nil:
		err = json.Unmarshal(content, &c)
	}
	if err != nil || c.State < 1 {
		return current{}, false, errors.Newf("%s is damaged (%v): remove %s, and it is fetched again", filepath.Join(dir, currentName), err, dir)
	}
	return c, true, nil
}
