package table

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Faults of files.
var (
	// ErrOutOfOrder: a key added to a table is not greater than the previous one.
	ErrOutOfOrder = errors.New("lsm: key out of order")

	// ErrCorrupt matches every *CorruptionError.
	ErrCorrupt = errors.New("lsm: corrupt")
	// ErrUnreadable matches every *ReadError.
	ErrUnreadable = errors.New("lsm: unreadable")
	// ErrNewerVersion: a file was written by a newer version of this package. The file
	// is intact.
	ErrNewerVersion = errors.New("lsm: written by a newer version")
)

// ReadError reports that a mapped file could not be read: it was truncated, or its disk
// failed. It unwraps to the *vfs.FaultError.
type ReadError struct {
	Path string
	Err  error
}

// Error names the file and the cause.
func (e *ReadError) Error() string { return fmt.Sprintf("lsm: read %s: %v", e.Path, e.Err) }

func (e *ReadError) Unwrap() error { return e.Err }

// Is makes a ReadError match ErrUnreadable.
func (e *ReadError) Is(target error) bool { return target == ErrUnreadable }

// CorruptionError reports a damaged file.
type CorruptionError struct {
	Path   string
	Offset int64 // bytes from the beginning of the file
	Reason string
}

// Error names the file, the offset and the damage.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("lsm: %s is corrupt at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is makes a CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }
