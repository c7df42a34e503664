package docservice

import (
	"errors"

	"docstore/docservice/internal/wire"
)

// Results for an id other than its document. Compare with errors.Is: errors of a client
// wrap the server's message.
var (
	// ErrNotFound: the document was never written, was deleted, or has expired.
	ErrNotFound = errors.New("docservice: not found")
	// ErrUnavailable: the document exists, or may exist, but this server cannot read it
	// now: its bytes are missing or damaged, or the queue has not been read to its end.
	// Another server may have it.
	ErrUnavailable = errors.New("docservice: unavailable")
	// ErrMoved: the collection is divided into shards, and the server does not serve the
	// shard of the id. The servers that do are in the current placement.
	ErrMoved = errors.New("docservice: the shard of the id is not served here")
	// ErrBadID: the id is empty or longer than queue.MaxIDBytes.
	ErrBadID = errors.New("docservice: invalid id: want 1 to 1024 bytes")
)

// Errors of calls as a whole.
var (
	// ErrNoCollection: the server has no collection of that name.
	ErrNoCollection = errors.New("docservice: no such collection")
	// ErrBatchTooLarge: the batch has more than MaxBatchIDs ids.
	ErrBatchTooLarge = wire.ErrBatchTooLarge
	// ErrMalformed: the bytes are not a valid request or response of this service.
	ErrMalformed = wire.ErrMalformed
)

// AnswerCode returns a word for the error of one document, as of Client.Get: not_found,
// unavailable, moved, invalid_id or internal.
func AnswerCode(err error) string {
	switch {
	case errors.Is(err, ErrNotFound):
		return "not_found"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrMoved):
		return "moved"
	case errors.Is(err, ErrBadID):
		return "invalid_id"
	}
	return "internal"
}
