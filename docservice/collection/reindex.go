package collection

import (
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// reindexName is the file in a collection's directory that requests another index. The
// collection removes it when it has begun to build one, so that the request survives a
// crash; an index that is partly built is completed after a restart.
const reindexName = "REINDEX"

// RequestReindex requests that another index is built from the queue of the collection in a
// directory, and replaces the present one. An open collection begins within its
// Options.RetryInterval, a closed one when it is opened. It serves the present
// index until the other one has read the queue to its end, as after damage; a request
// during a replacement has no further effect. The index must exist.
func RequestReindex(files vfs.FS, dir string) error {
	numbers, err := listIndexes(files, dir)
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		return errors.Newf("%s holds no index", dir)
	}
	return vfs.WriteFileAtomic(files, filepath.Join(dir, reindexName), nil)
}

// reindexRequested reports whether RequestReindex was called.
func (c *Collection) reindexRequested() (bool, error) {
	_, err := c.options.FS.Stat(filepath.Join(c.dir, reindexName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// endReindexRequest removes the request.
func (c *Collection) endReindexRequest() error {
	if err := c.options.FS.Remove(filepath.Join(c.dir, reindexName)); err != nil {
		return err
	}
	return c.options.FS.SyncDir(c.dir)
}
