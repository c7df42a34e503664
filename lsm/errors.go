package lsm

import (
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
