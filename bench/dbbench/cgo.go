//go:build cgo_rivals

package main

import "C"

import "unsafe"

// cBytes passes a slice to C for the time of a call.
func cBytes(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }

// goBytes returns n bytes of C's memory without a copy.
func goBytes(p *C.char, n C.size_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n))
}
