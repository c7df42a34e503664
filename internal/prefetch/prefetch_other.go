//go:build !amd64 && !arm64

package prefetch

// Bytes has the lines that b lies in fetched.
func Bytes([]byte) {}

// Of has the lines that v lies in fetched.
func Of[T any](*T) {}
