package bloom

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Open, and loading pages.
var (
	// ErrCorrupt is what every *CorruptionError matches.
	ErrCorrupt = errors.New("bloom: corrupt")
	// ErrNewerVersion: the filter is whole, but of a format that this code is
	// too old to read.
	ErrNewerVersion = errors.New("bloom: the format is newer than this program")
)

// CorruptionError tells where a filter has bytes that no Builder wrote.
type CorruptionError struct {
	Path   string
	Offset int64  // in the file at Path
	Reason string // what is wrong there: got and want
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("bloom: %s is corrupt at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is makes a CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }
