// Package eof tells the end of a stream from errors that contain it.
//
// io.EOF itself is the end. An error that wraps it, such as that of a request to a store or of a
// read that is too short, is a failure: a program that takes it for the end leaves out the rest
// and reports success. errors.Is does not tell them apart.
package eof

import "io"

// Is reports whether err is the end of a stream, and not a failure that wraps it.
func Is(err error) bool {
	return err == io.EOF //nolint:errorlint // an error that wraps io.EOF is a failure
}

// Unexpected returns io.ErrUnexpectedEOF instead of the end of a stream, and other errors as
// they are. It is for a stream that ends where more is needed.
func Unexpected(err error) error {
	if Is(err) {
		return io.ErrUnexpectedEOF
	}
	return err
}
