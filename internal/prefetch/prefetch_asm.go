//go:build amd64 || arm64

package prefetch

import "unsafe"

// Bytes has the lines that b lies in fetched.
func Bytes(b []byte) { lines(unsafe.SliceData(b), len(b)) }

// Word has the line fetched that w lies in.
func Word(w *uint64) { lines((*byte)(unsafe.Pointer(w)), 1) }

//go:noescape
func lines(p *byte, n int)
