package lsm

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// What a look-up answers.
var (
	// ErrNotFound says that the store holds no value for the key.
	ErrNotFound = errors.New("lsm: not found")
)

// What is wrong with a request.
var (
	// ErrKeyTooLarge says that a key is longer than MaxKeyBytes.
	ErrKeyTooLarge = errors.New("lsm: key too large")
	// ErrValueTooLarge says that a value is longer than MaxValueBytes.
	ErrValueTooLarge = errors.New("lsm: value too large")
	// ErrBatchTooLarge says that a batch is larger than MaxBatchBytes.
	ErrBatchTooLarge = errors.New("lsm: batch too large")
	// ErrOutOfOrder says that a Builder was given a key that does not follow
	// the one before it.
	ErrOutOfOrder = errors.New("lsm: key out of order")
	// ErrBudget says that a snapshot or iterator would pin more memory than the
	// Budget has room for.
	ErrBudget = errors.New("lsm: memory budget exceeded")
)

// What state the store is in.
var (
	// ErrClosed says that the store, snapshot, iterator or builder is closed.
	ErrClosed = errors.New("lsm: closed")
	// ErrReadOnly says that the store was opened to be read only.
	ErrReadOnly = errors.New("lsm: read-only")
	// ErrLocked says that another DB, here or in another process, has the
	// directory open for writing. The message names it.
	ErrLocked = errors.New("lsm: locked")
	// ErrExists says that something is where a new store should go.
	ErrExists = errors.New("lsm: exists already")
	// ErrNoStore says that a directory to be opened read-only holds no store.
	ErrNoStore = errors.New("lsm: no store here")
)

// What is wrong with a file.
var (
	// ErrCorrupt matches every *CorruptionError.
	ErrCorrupt = errors.New("lsm: corrupt")
	// ErrUnreadable matches every *ReadError.
	ErrUnreadable = errors.New("lsm: unreadable")
	// ErrNewerVersion says that a file was written by a newer version of this
	// package. The file is sound.
	ErrNewerVersion = errors.New("lsm: written by a newer version")
)

// ReadError says that a mapped file could not be read: it was truncated, or its disk
// failed. It unwraps to the *vfs.FaultError.
type ReadError struct {
	Path string
	Err  error
}

// Error says which file could not be read and why.
func (e *ReadError) Error() string { return fmt.Sprintf("lsm: read %s: %v", e.Path, e.Err) }

func (e *ReadError) Unwrap() error { return e.Err }

// Is makes a ReadError match ErrUnreadable.
func (e *ReadError) Is(target error) bool { return target == ErrUnreadable }

// CorruptionError tells where a file is not what was written.
type CorruptionError struct {
	Path   string
	Offset int64 // bytes from the beginning of the file
	Reason string
}

// Error says what is wrong and where.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("lsm: %s is corrupt at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is makes a CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }
