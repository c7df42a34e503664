package segment

import (
	"fmt"

	"docstore/queue/stored"

	"github.com/cockroachdb/errors"
)

// CorruptionError reports wrong bytes of a segment. It matches stored.ErrCorrupt.
type CorruptionError struct {
	Path    string
	Segment ID
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

// Is makes errors.Is(err, stored.ErrCorrupt) true.
func (e *CorruptionError) Is(target error) bool { return target == stored.ErrCorrupt }

// IsContent reports whether an error is about the bytes of a file, and not about reading
// it.
func IsContent(err error) bool {
	return errors.Is(err, ErrPartial) || errors.Is(err, stored.ErrCorrupt)
}

// Errors that package queue returns, and documents.
var (
	ErrForked   = errors.New("queue: forked")
	ErrMismatch = errors.New("queue: address holds another id")
	ErrDeleted  = errors.New("queue: document is deleted")
)

// ErrPartial states that the file ends before the bytes to be read, or they were never written.
// They may still arrive.
var ErrPartial = errors.New("bytes are not there yet")

var errBlockKind = errors.New("block is relocated in an original, or not relocated in a rewrite")
