package bloom

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Errors of Open and of loading pages.
var (
	// ErrCorrupt matches every *CorruptionError.
	ErrCorrupt = errors.New("bloom: corrupt")
	// ErrNewerVersion: the filter is intact, but its format is newer than this code.
	ErrNewerVersion = errors.New("bloom: the format is newer than this program")
)

// CorruptionError reports bytes that no Builder wrote.
type CorruptionError struct {
	Path   string
	Offset int64  // in the file at Path
	Reason string // got and want
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("bloom: %s is corrupt at offset %d: %s", e.Path, e.Offset, e.Reason)
}

// Is makes a CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }
