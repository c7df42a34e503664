package lsm

import (
	"github.com/cockroachdb/errors"

	"docstore/lsm/internal/table"
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
	ErrCorrupt = table.ErrCorrupt
	// ErrUnreadable matches every *ReadError.
	ErrUnreadable = table.ErrUnreadable
	// ErrNewerVersion: a file was written by a newer version of this package. The file
	// is intact.
	ErrNewerVersion = table.ErrNewerVersion
	// ErrOutOfOrder: a key added to a Builder is not greater than the previous one.
	ErrOutOfOrder = table.ErrOutOfOrder
)

// CorruptionError reports a damaged file: its Path, the Offset in bytes, and the Reason.
type CorruptionError = table.CorruptionError

// ReadError reports that a mapped file could not be read: it was truncated, or its disk
// failed. It unwraps to the *vfs.FaultError.
type ReadError = table.ReadError
