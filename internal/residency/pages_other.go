//go:build !linux

package residency

// Supported reports whether this system tells which pages are in memory and read.
const Supported = false

func pagesRead() uint64 { return 0 }

func isPresent(*byte) (present, ok bool) { return false, false }
