//go:build !linux

package residency

// Supported reports whether this system tells which pages are in memory and read.
const Supported = false

func pagesRead() uint64 { return 0 }

func isPresent(*byte) (present, ok bool) { return false, false }

// AllPresent reports whether all pages of a part of a mapping are in memory; false if the
// system does not tell.
func AllPresent([]byte) bool { return false }
