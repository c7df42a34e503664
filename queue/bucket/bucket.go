package bucket

import (
	"context"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/cockroachdb/errors"
)

// Limits of a bucket.
const (
	// MaxNameBytes bounds the length of an object's name.
	MaxNameBytes = 512
	// MaxObjectBytes bounds the size of an object: S3 accepts 5 GiB in a single PUT.
	MaxObjectBytes = 5 << 30
)

// Errors that callers distinguish.
var (
	// ErrExist: Put found an object of that name.
	ErrExist = errors.New("bucket: the object exists")
	// ErrNotExist: there is no object of that name.
	ErrNotExist = errors.New("bucket: the object does not exist")
	// ErrURL: the URL of a bucket is invalid.
	ErrURL = errors.New("bucket: invalid URL")
	// ErrNoBucket: the bucket or directory itself does not exist.
	ErrNoBucket = errors.New("bucket: the bucket does not exist")
	// ErrDenied: the store refused the credentials, or they do not permit the operation.
	ErrDenied = errors.New("bucket: access denied")
	// ErrClockSkew: the clock of this machine differs too much from the store's.
	ErrClockSkew = errors.New("bucket: the clocks of this machine and the store differ too much")
)

// Bucket stores immutable objects. See the package comment for names and guarantees.
type Bucket interface {
	// Get returns a reader of length bytes from offset on, or of all that follow if
	// length is negative. A range that reaches beyond the end of the object is cut there
	// and may be empty. The caller closes the reader.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// Put creates an object from the first size bytes of body. It returns ErrExist, and
	// changes nothing, if there is an object of that name. The object is durable when
	// Put returns.
	Put(ctx context.Context, name string, body io.ReaderAt, size int64) error
	// Head returns the size of an object.
	Head(ctx context.Context, name string) (Info, error)
	// List iterates over the objects whose names begin with prefix and are greater than
	// after, in the order of their names. It ends after the first error.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
	// Delete removes an object. It returns nil if there is none.
	Delete(ctx context.Context, name string) error
}

// Info describes an object.
type Info struct {
	Name string
	Size int64 // bytes
	// Modified is the time of the last change; only List of an S3 bucket sets it.
	Modified time.Time
}

// checkName returns an error unless name may be the name of an object.
func checkName(name string) error {
	if name == "" || len(name) > MaxNameBytes {
		return errors.Newf("bucket: the name of an object must have 1 to %d bytes, this one has %d", MaxNameBytes, len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.ContainsFunc(part, notInName) {
			return errors.Newf("bucket: invalid object name %q: use letters, digits, '.', '_', '-' and '/' between parts that do not begin with '.'", name)
		}
	}
	return nil
}

func notInName(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return r != '.' && r != '_' && r != '-'
}

// temporaryError is an error that may not recur in another attempt.
type temporaryError struct {
	error
	slowDown bool // the store asks for fewer requests
}

func (e *temporaryError) Unwrap() error { return e.error }

// temporary reports whether a request that failed with err is worth repeating.
func temporary(err error) bool {
	var t *temporaryError
	return errors.As(err, &t)
}

// asksToSlowDown reports whether the store asked for fewer requests.
func asksToSlowDown(err error) bool {
	var t *temporaryError
	return errors.As(err, &t) && t.slowDown
}
