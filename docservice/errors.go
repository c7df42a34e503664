package docservice

import "github.com/cockroachdb/errors"

// The answers for an id other than its document. Compare with errors.Is: a
// client's errors carry what the server said.
var (
	// ErrNotFound: there is no such document: never written, deleted or expired.
	ErrNotFound = errors.New("docservice: not found")
	// ErrUnavailable: the document exists, or may exist, but cannot be had here
	// and now: its bytes are missing or damaged, or the queue has not been read
	// to its end. Another server may have it.
	ErrUnavailable = errors.New("docservice: unavailable")
	// ErrBadID: the id is empty or longer than queue.MaxIDBytes.
	ErrBadID = errors.New("docservice: an id has 1 byte to 1 KiB")
)

// Errors of calls as a whole.
var (
	// ErrClosed: the collection has been closed.
	ErrClosed = errors.New("docservice: collection is closed")
	// ErrNoCollection: the servers have no collection of that name.
	ErrNoCollection = errors.New("docservice: no such collection")
	// ErrBatchTooLarge: more than MaxBatchIDs ids at once.
	ErrBatchTooLarge = errors.New("docservice: more than 16384 ids in a batch")
	// ErrMalformed: bytes that are no request or no response of this service.
	ErrMalformed = errors.New("docservice: malformed message")
)
