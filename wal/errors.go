package wal

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Append and Sync.
var (
	// ErrFull: the record does not fit into what is left of the log. Nothing
	// was written and the log can still be used.
	ErrFull = errors.New("wal: the log is full")
	// ErrTooLarge: the payload has more than MaxPayloadBytes.
	ErrTooLarge = errors.New("wal: the payload is larger than 1 GiB")
	// ErrSequence: the sequence number is not above that of the record before.
	ErrSequence = errors.New("wal: the sequence number does not rise")
	// ErrClosed: the Writer was closed.
	ErrClosed = errors.New("wal: the log is closed")
)

// Replay.
var (
	// ErrCorrupt is what every *CorruptionError matches.
	ErrCorrupt = errors.New("wal: corrupt")
	// ErrNewerVersion: the log is whole, but of a format that this code is too
	// old to read.
	ErrNewerVersion = errors.New("wal: the format is newer than this program")
)

// CorruptionError tells where a log has bytes that it cannot have had when
// they were last durable.
type CorruptionError struct {
	Path   string
	Offset int64  // of the header or record that is damaged
	Reason string // what is wrong there: got and want
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("wal: %s is corrupt at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is makes a CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }
