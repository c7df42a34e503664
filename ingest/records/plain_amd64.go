package records

// plainBlocks is plainWords in steps of sixteen bytes with SSE2, which every amd64
// processor has.
//
//go:noescape
func plainBlocks(text []byte, at int) int
