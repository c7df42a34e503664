package queue

import (
	"fmt"

	"docstore/queue/codec"
	"docstore/queue/internal/segment"
	"docstore/queue/stored"

	"github.com/cockroachdb/errors"
)

// Errors of any call.
var (
	// ErrClosed: the Writer or Reader has been closed.
	ErrClosed = errors.New("queue: closed")
	// ErrNewerVersion: the bytes were written by a newer version of this package. They
	// are not damaged.
	ErrNewerVersion = stored.ErrNewerVersion
	// ErrUnknownCodec: this build has no codec of that name or number.
	ErrUnknownCodec = codec.ErrUnknown
	// ErrCorrupt is matched by every *CorruptionError.
	ErrCorrupt = stored.ErrCorrupt
)

// Errors of a Writer.
var (
	// ErrLocked: another Writer has locked the directory; the message names it.
	ErrLocked = segment.ErrLocked
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
	// ErrIncomplete: the directory has less than its head states, because files were
	// removed or replaced by older copies; the message says what to do.
	ErrIncomplete = errors.New("queue: directory is incomplete")
	// ErrFull: all segment numbers are used.
	ErrFull = errors.New("queue: no segment number is left")
)

// Errors of a Reader.
var (
	// ErrUnavailable: the document cannot be read: its bytes are missing, have not
	// arrived, are damaged, or belong to another id. Another copy of the queue, or this
	// one later, may have the document. The error wraps the reason.
	ErrUnavailable = errors.New("queue: document is unavailable")
	// ErrMismatch: the document at the address has another id. It is wrapped in
	// ErrUnavailable.
	ErrMismatch = segment.ErrMismatch
	// ErrDeleted: the address is that of a delete.
	ErrDeleted = segment.ErrDeleted
	// ErrOtherPlace: the document does not have the checksum of the Place with which it was wanted.
	// It was encoded again since then, or Address or Place are damaged.
	ErrOtherPlace = segment.ErrOtherPlace
	// ErrNoDictionary: the dictionary of a document is not available.
	ErrNoDictionary = stored.ErrNoDictionary
	// ErrForked: the segment belongs to another queue than the position or the previous
	// segment, or to another history of the same queue. The bytes are not damaged.
	// Because a Position carries a Proof, the error repeats until the files that the
	// Position was taken from are restored.
	ErrForked = segment.ErrForked
	// ErrDiverged: the position is after the end of its sealed segment, so it was taken
	// from another history of the queue.
	ErrDiverged = errors.New("queue: diverged")
	// ErrTruncated is matched by every *TruncatedError.
	ErrTruncated = errors.New("queue: truncated")
)

// IncompleteError reports what a directory lacks, with the two remedies. It matches
// ErrIncomplete.
type IncompleteError struct {
	Dir    string
	Keep   string // the last complete segment, or the address before which the entries are complete
	Reason string
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%v: %s. Addresses must not be used twice. Restore the newer files, or discard their entries: "+
		"docstore-updater truncate --queue %s --to %s", ErrIncomplete, e.Reason, e.Dir, e.Keep)
}

// Is makes errors.Is(err, ErrIncomplete) true.
func (e *IncompleteError) Is(target error) bool { return target == ErrIncomplete }

// TruncatedError reports that entries before a position, or the entry at a fetched
// address, were truncated: see Truncate. An index that holds them must be rebuilt from
// the start of the queue. It matches ErrTruncated; for a fetch it is wrapped in
// ErrUnavailable, because an earlier version of the document may exist.
type TruncatedError struct {
	Position Position
	// From and To: the entries at From and before To were truncated. Later entries have
	// addresses from To on.
	From, To Address
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("queue: entries from %s to before %s were truncated, after a reader had read up to %s: "+
		"rebuild its index from the queue", e.From, e.To, e.Position.Next)
}

// Is makes errors.Is(err, ErrTruncated) true.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// GoneError reports that a rewrite has dropped the entry, because it was superseded,
// deleted or expired. It is wrapped in ErrUnavailable. For an index that has read the
// queue up to Settled and still has the address as the newest one of its id, the document
// does not exist. An index that has not read so far may lack a newer version.
type GoneError struct {
	Address Address
	Settled Position
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("queue: address %s was superseded before %s and dropped by a compaction", e.Address, e.Settled)
}

// LostError reports that the entry at the address was lost to damage, as recorded by
// Repair. It is wrapped in ErrUnavailable.
type LostError struct{ Address Address }

func (e *LostError) Error() string {
	return fmt.Sprintf("queue: the entry at %s was lost to damage", e.Address)
}

// CorruptionError reports wrong bytes of a file. It matches ErrCorrupt. The fields are the
// Path, the Segment, the Offset of the wrong header, block, document, mark or footer, the ID of
// a damaged document, if known, and the Reason.
type CorruptionError = segment.CorruptionError

// unavailableError wraps the reason why an address cannot be read. It is formatted when it is
// read, because most callers only compare it.
type unavailableError struct {
	address Address
	reason  error
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("%v: address %s: %v", ErrUnavailable, e.address, e.reason)
}

func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }

func (e *unavailableError) Unwrap() error { return e.reason }
