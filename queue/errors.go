package queue

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Errors of any call.
var (
	// ErrClosed: the Writer or Reader has been closed.
	ErrClosed = errors.New("queue: closed")
	// ErrNewerVersion: the bytes were written by a newer version of this
	// package. They are not damaged.
	ErrNewerVersion = errors.New("queue: format is newer than this program")
	// ErrUnknownCodec: no codec of that name or number is in this build.
	ErrUnknownCodec = errors.New("queue: unknown codec")
	// ErrCorrupt is matched by every *CorruptionError.
	ErrCorrupt = errors.New("queue: corrupt")
)

// Errors of a Writer.
var (
	// ErrLocked: another Writer has the directory; the message names it.
	ErrLocked = errors.New("queue: directory is being written")
	// ErrIDEmpty: an id needs at least one byte.
	ErrIDEmpty = errors.New("queue: id is empty")
	// ErrIDTooLong: the id has more than MaxIDBytes.
	ErrIDTooLong = errors.New("queue: id is too long")
	// ErrDocumentTooLarge: the document has more than MaxDocumentBytes.
	ErrDocumentTooLarge = errors.New("queue: document is too large")
	// ErrDeleteWithDocument: a delete has neither a document nor an expiry.
	ErrDeleteWithDocument = errors.New("queue: delete with a document or an expiry")
	// ErrCursorTooLong: the cursor has more than MaxCursorBytes.
	ErrCursorTooLong = errors.New("queue: cursor is too long")
	// ErrIncomplete: the directory has less than its head states. Files were
	// removed or replaced by older ones; the message says what to do.
	ErrIncomplete = errors.New("queue: directory is incomplete")
	// ErrFull: the last segment number is taken.
	ErrFull = errors.New("queue: no segment number is left")
)

// Errors of a Reader.
var (
	// ErrUnavailable: the address is known, but its bytes are missing, not yet
	// there, damaged, or another document's. Another copy of the queue, or this
	// one later, may have them. The error wraps the reason.
	ErrUnavailable = errors.New("queue: document is unavailable")
	// ErrMismatch: a document of another id lies at the address. It comes
	// wrapped in ErrUnavailable.
	ErrMismatch = errors.New("queue: address holds another id")
	// ErrDeleted: the address is that of a delete.
	ErrDeleted = errors.New("queue: document is deleted")
	// ErrNoDictionary: the dictionary of a document cannot be had.
	ErrNoDictionary = errors.New("queue: dictionary cannot be had")
	// ErrForked: the segment belongs to another queue than the position or the
	// segment before it, or to another history of the same queue. The bytes are
	// not damaged. Since a Position carries a Proof, the error comes again at
	// every attempt until the files that the Position was taken from are back.
	ErrForked = errors.New("queue: forked")
	// ErrDiverged: the position lies behind the end of its sealed segment, so
	// the position was taken from another history of the queue.
	ErrDiverged = errors.New("queue: diverged")
	// ErrTruncated is matched by every *TruncatedError.
	ErrTruncated = errors.New("queue: truncated")
)

// TruncatedError reports that entries before a position, or the entry at an address
// that is fetched, were taken back: see Truncate. An index that holds them must be
// rebuilt from the start of the queue. It matches ErrTruncated; for a fetch it is
// wrapped in ErrUnavailable, because an earlier version of the document may exist.
type TruncatedError struct {
	Position Position
	// From and To: the entries at From and before To were taken back. Entries
	// that were appended later have addresses from To on.
	From, To Address
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("queue: entries from %s to before %s were taken back, after a reader had read up to %s: "+
		"its index must be built again from the queue", e.From, e.To, e.Position.Next)
}

// Is makes errors.Is(err, ErrTruncated) true.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// GoneError says that the segment was rewritten without the entry, because it
// was superseded, deleted or expired. It comes wrapped in ErrUnavailable: who
// has not read the queue up to Settled cannot know what took its place. Who has,
// and finds that the address is still the newest one of its id, knows that there
// is no document.
type GoneError struct {
	Address Address
	Settled Position
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("queue: address %s was superseded before %s and is no longer kept", e.Address, e.Settled)
}

// LostError says that what stood at the address was lost to damage, as Repair has
// noted. It comes wrapped in ErrUnavailable.
type LostError struct{ Address Address }

func (e *LostError) Error() string {
	return fmt.Sprintf("queue: what stood at %s was lost to damage", e.Address)
}

// CorruptionError says where bytes of a segment are wrong and how. It matches
// ErrCorrupt.
type CorruptionError struct {
	Path    string
	Segment SegmentID
	Offset  int64  // of the wrong header, block, document, mark or footer
	ID      string // of the damaged document, where it is known
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

// markedError gives an error the meaning of a sentinel and keeps its reason.
type markedError struct {
	mark   error
	detail string
	reason error // may be nil
}

func (e *markedError) Error() string {
	text := e.mark.Error()
	if e.detail != "" {
		text += ": " + e.detail
	}
	if e.reason != nil {
		text += ": " + e.reason.Error()
	}
	return text
}

func (e *markedError) Is(target error) bool { return target == e.mark }

func (e *markedError) Unwrap() error { return e.reason }

// unavailable is the answer for an address that cannot be served, and why.
func unavailable(a Address, reason error) error {
	return &markedError{mark: ErrUnavailable, detail: "address " + a.String(), reason: reason}
}
