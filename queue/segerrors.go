package queue

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// CorruptionError reports wrong bytes of a segment. It matches ErrCorrupt.
type CorruptionError struct {
	Path    string
	Segment SegmentID
	Offset  int64  // of the wrong header, block, document, mark or footer
	ID      string // of the damaged document, if known
	Reason  string
}

func (e *CorruptionError) Error() string {
	if e.ID != "" {
		return fmt.Sprintf("queue: %s: segment %d, offset %d, id %q: %s", e.Path, e.Segment, e.Offset, e.ID, e.Reason)
	}
	return fmt.Sprintf("queue: %s: segment %d, offset %d: %s", e.Path, e.Segment, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }

// isContent reports whether an error is about the bytes of a file, and not about reading
// it.
func isContent(err error) bool {
	return errors.Is(err, errIncomplete) || errors.Is(err, ErrCorrupt)
}

// errIncomplete: the file ends before the bytes to be read, or they were never written.
// They may still arrive.
var errIncomplete = errors.New("bytes are not there yet")

var errBlockKind = errors.New("block is relocated in an original, or not relocated in a rewrite")
