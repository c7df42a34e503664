//go:build !amd64 && !arm64

package prefetch

// Bytes has the lines that b lies in fetched.
func Bytes([]byte) {}

// Word has the line fetched that w lies in.
func Word(*uint64) {}
