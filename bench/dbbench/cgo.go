//go:build cgo_rivals

package main

import "C"

import "unsafe"

// cBytes passes a slice to C for the time of a call.
func cBytes(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }
