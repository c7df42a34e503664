package wal

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Errors of Append and Sync.
var (
	// ErrFull: the record does not fit into the log. Nothing was written; the log
	// remains usable.
	ErrFull = errors.New("wal: the log is full")
	// ErrTooLarge: the payload has more than MaxPayloadBytes.
	ErrTooLarge = errors.New("wal: the payload is larger than 1 GiB")
	// ErrSequence: the sequence number is not greater than the previous one.
	ErrSequence = errors.New("wal: the sequence number does not rise")
	// ErrClosed: the Writer was closed.
	ErrClosed = errors.New("wal: the log is closed")
)

// Errors of Replay.
var (
	// ErrCorrupt matches every *CorruptionError.
	ErrCorrupt = errors.New("wal: corrupt")
	// ErrNewerVersion: the log is intact, but its format is newer than this code.
	ErrNewerVersion = errors.New("wal: the format is newer than this program")
)

// CorruptionError reports damage to bytes of a log that were durable.
type CorruptionError struct {
	Path   string
	Offset int64  // of the damaged header or record
	Reason string // got and want
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("wal: %s is corrupt at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is makes a CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }
