package lsm

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Results of lookups.
var (
	// ErrNotFound: the store has no value for the key.
	ErrNotFound = errors.New("lsm: not found")
)

// Invalid requests.
var (
	// ErrKeyTooLarge: a key is longer than MaxKeyBytes.
	ErrKeyTooLarge = errors.New("lsm: key too large")
	// ErrValueTooLarge: a value is longer than MaxValueBytes.
	ErrValueTooLarge = errors.New("lsm: value too large")
	// ErrBatchTooLarge: a batch is larger than MaxBatchBytes.
	ErrBatchTooLarge = errors.New("lsm: batch too large")
	// ErrOutOfOrder: a key added to a Builder is not greater than the previous one.
	ErrOutOfOrder = errors.New("lsm: key out of order")
	// ErrBudget: a snapshot or iterator would pin more memory than the Budget allows.
	ErrBudget = errors.New("lsm: memory budget exceeded")
)

// States of the store.
var (
	// ErrClosed: the store, snapshot, iterator or builder is closed.
	ErrClosed = errors.New("lsm: closed")
	// ErrReadOnly: the store was opened read-only.
	ErrReadOnly = errors.New("lsm: read-only")
	// ErrLocked: another DB, in this or another process, has the directory open for
	// writing. The message names it.
	ErrLocked = errors.New("lsm: locked")
	// ErrExists: the target of a new store exists.
	ErrExists = errors.New("lsm: exists already")
	// ErrNoStore: a directory opened read-only has no store.
	ErrNoStore = errors.New("lsm: no store here")
)

// Faults of files.
var (
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
