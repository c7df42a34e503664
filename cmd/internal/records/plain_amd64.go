package records

// plainBlocks is plainWords for sixteen bytes at a time, by instructions that every
// processor of this kind has (SSE2).
//
//go:noescape
func plainBlocks(text []byte, at int) int
