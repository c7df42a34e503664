package stored

import (
	"cmp"
	"fmt"
)

// SegmentID is the number of a segment. A queue's first segment is 1; 0 is no
// segment.
type SegmentID uint32

// Address is the permanent address of one version of a document, or of one delete.
// Addresses are assigned in ascending order: of two addresses of the same id the greater
// one is the newer version.
type Address struct {
	Segment SegmentID
	Block   uint32 // offset of the block in its segment, in bytes
	Index   uint16 // of the entry in the block
}

// Compare orders addresses by age: negative if a is older than b.
func (a Address) Compare(b Address) int {
	return cmp.Or(
		cmp.Compare(a.Segment, b.Segment),
		cmp.Compare(a.Block, b.Block),
		cmp.Compare(a.Index, b.Index),
	)
}

// IsZero reports whether a is the zero Address, which names nothing.
func (a Address) IsZero() bool { return a == Address{} }

// String is "segment/block/index", all decimal.
func (a Address) String() string {
	return fmt.Sprintf("%d/%d/%d", a.Segment, a.Block, a.Index)
}
