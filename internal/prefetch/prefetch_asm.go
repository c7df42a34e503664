//go:build amd64 || arm64

package prefetch

import "unsafe"

// Bytes has the lines that b lies in fetched.
func Bytes(b []byte) { lines(unsafe.SliceData(b), len(b)) }

// Of has the lines that v lies in fetched.
func Of[T any](v *T) { lines((*byte)(unsafe.Pointer(v)), int(unsafe.Sizeof(*v))) }

//go:noescape
func lines(p *byte, n int)
