//go:build amd64 || arm64

package prefetch

import "unsafe"

// Bytes prefetches the lines of b.
func Bytes(b []byte) { lines(unsafe.SliceData(b), len(b)) }

// Of prefetches the lines of v.
func Of[T any](v *T) { lines((*byte)(unsafe.Pointer(v)), int(unsafe.Sizeof(*v))) }

//go:noescape
func lines(p *byte, n int)
