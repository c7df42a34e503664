//go:build !linux

package residency

const supported = false

func pagesRead() uint64 { return 0 }

func isPresent(*byte) (present, ok bool) { return false, false }
