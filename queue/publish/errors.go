package publish

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// Errors of this package.
var (
	// ErrFenced: another publisher has taken over the collection.
	ErrFenced = errors.New("publish: another publisher has taken over the collection")
	// ErrRefused: the state of the bucket or the queue does not permit the operation; the
	// message says why, and what to do.
	ErrRefused = errors.New("publish: refused")
	// ErrRejected: the content of a manifest is outside the bounds of Validate.
	ErrRejected = errors.New("publish: rejected")
	// ErrCorrupt: an object is damaged, or differs from the digest in its name or in a
	// reference to it.
	ErrCorrupt = errors.New("publish: corrupt")
	// ErrDiverged: a directory holds bytes of increments that are not part of the segment
	// that was published, or that are damaged. They must be discarded.
	ErrDiverged = errors.New("publish: increments differ from the published segment")
	// ErrNewerVersion: an object was written by a newer version of this package. It is not
	// damaged.
	ErrNewerVersion = errors.New("publish: format is newer than this program")
)

// markedError is an error with a message that matches one of the errors above.
type markedError struct {
	mark    error
	message string
}

func (e *markedError) Error() string { return e.message }

func (e *markedError) Is(target error) bool { return target == e.mark }

// Refused returns an error that matches ErrRefused.
func Refused(format string, args ...any) error { return refused(format, args...) }

// Rejected returns an error that matches ErrRejected.
func Rejected(format string, args ...any) error {
	return &markedError{ErrRejected, "publish: " + fmt.Sprintf(format, args...)}
}

func refused(format string, args ...any) error {
	return &markedError{ErrRefused, "publish: " + fmt.Sprintf(format, args...)}
}

// unsealed returns an error that matches ErrRefused: sealing the open segments of the queue helps.
func unsealed(format string, args ...any) error {
	return &unsealedError{markedError{ErrRefused, "publish: " + fmt.Sprintf(format, args...)}}
}

type unsealedError struct{ markedError }

func corrupt(format string, args ...any) error {
	return &markedError{ErrCorrupt, "publish: " + fmt.Sprintf(format, args...)}
}
