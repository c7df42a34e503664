//go:build !amd64 && !arm64

package prefetch

// Bytes prefetches the lines of b.
func Bytes([]byte) {}

// Of prefetches the lines of v.
func Of[T any](*T) {}
