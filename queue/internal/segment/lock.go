package segment

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"docstore/internal/vfs"

	"github.com/cockroachdb/errors"
)

// Names of the lock files in a queue's directory.
const (
	LockName        = "LOCK"    // held by the Writer
	CompactLockName = "COMPACT" // held by the running compaction
)

// ErrLocked is documented in package queue.
var ErrLocked = errors.New("queue: directory is being written")

// Lock locks one of the lock files of a directory. The error matches ErrLocked if another
// process or program part has it.
func Lock(fsys vfs.FS, dir, name string, now time.Time) (io.Closer, error) {
	lock, err := fsys.Lock(filepath.Join(dir, name), vfs.Holder(now))
	var locked *vfs.LockedError
	if errors.As(err, &locked) {
		by := "by another process"
		if locked.Holder != "" {
			by = "by " + locked.Holder
		}
		return nil, fmt.Errorf("%w: %s, %s", ErrLocked, dir, by)
	}
	return lock, errors.Wrap(err, "queue: locking the directory")
}
