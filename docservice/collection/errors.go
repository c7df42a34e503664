package collection

import "github.com/cockroachdb/errors"

var (
	// ErrClosed is the error of every call after Close.
	ErrClosed = errors.New("docservice: collection is closed")
	// ErrIndexDamaged is matched by the error of CheckpointIndex if the index is damaged, or lacks files.
	ErrIndexDamaged = errors.New("docservice: the index is damaged")
	// ErrNotPermitted is matched by the error of a request whose client may not use the
	// collection: see Service.Authorize.
	ErrNotPermitted = errors.New("docservice: not permitted")
	// ErrShardAbsent is the error for an id whose shard is expected but not served yet. It is
	// an answer, not the failure of a call: the server works, so pools neither avoid it nor
	// charge their retry budget when the client asks another server.
	ErrShardAbsent = unavailable(errors.New("the shard of the id is not served here yet"))
)

// A refusal is an error of a request with a message for the client.
type refusal struct {
	reason  error
	message string
}

func (r *refusal) Error() string { return r.message }

// Unwrap returns the reason.
func (r *refusal) Unwrap() error { return r.reason }
