package collection

import "github.com/cockroachdb/errors"

// ErrClosed: the collection has been closed.
var ErrClosed = errors.New("docservice: collection is closed")
