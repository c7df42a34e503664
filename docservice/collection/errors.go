package collection

import "github.com/cockroachdb/errors"

// ErrClosed is the error of every call after Close.
var ErrClosed = errors.New("docservice: collection is closed")
