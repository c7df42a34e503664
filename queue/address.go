package queue

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// SegmentID is the number of a segment. A queue's first segment is 1; 0 is no
// segment.
type SegmentID uint32

// Address is the permanent name of one version of a document, or of one
// delete. Addresses are given out in ascending order, so of two addresses of
// the same id the greater one is the newer version.
type Address struct {
	Segment SegmentID
	Block   uint32 // offset of the block in its segment, in bytes
	Index   uint16 // which of the block's entries
}

// Compare orders addresses by age: negative if a is older than b.
func (a Address) Compare(b Address) int {
	return cmp.Or(
		cmp.Compare(a.Segment, b.Segment),
		cmp.Compare(a.Block, b.Block),
		cmp.Compare(a.Index, b.Index),
	)
}

// IsZero tells whether a is the zero Address, which names nothing.
func (a Address) IsZero() bool { return a == Address{} }

// String is "segment/block/index", all decimal.
func (a Address) String() string {
	return fmt.Sprintf("%d/%d/%d", a.Segment, a.Block, a.Index)
}

// Position is a place between two entries of a queue: everything before Next
// has been seen. Positions may be compared with ==. The zero Position is the
// start of whichever queue there is.
type Position struct {
	Queue [16]byte // the queue's id; zero only in the zero Position
	Next  Address  // where the next entry is or is going to be
}

// IsZero tells whether p is the zero Position.
func (p Position) IsZero() bool { return p == Position{} }

// String is the queue's id in hex, a colon and the address.
func (p Position) String() string {
	return hex.EncodeToString(p.Queue[:]) + ":" + p.Next.String()
}

const (
	positionVersion = 0
	positionBytes   = 1 + 16 + 4 + 4 + 2
)

// AppendBinary appends what MarshalBinary returns.
func (p Position) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, positionVersion)
	dst = append(dst, p.Queue[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.Next.Segment))
	dst = binary.LittleEndian.AppendUint32(dst, p.Next.Block)
	return binary.LittleEndian.AppendUint16(dst, p.Next.Index), nil
}

// MarshalBinary is 27 bytes: a version byte, the queue's id, and the address
// as segment u32, block u32, index u16, little-endian.
func (p Position) MarshalBinary() ([]byte, error) {
	return p.AppendBinary(make([]byte, 0, positionBytes))
}

// UnmarshalBinary reads what MarshalBinary wrote. Where it fails, p is left
// unchanged.
func (p *Position) UnmarshalBinary(data []byte) error {
	if len(data) > 0 && data[0] > positionVersion {
		return fmt.Errorf("queue: position of version %d: %w", data[0], ErrNewerVersion)
	}
	if len(data) != positionBytes {
		return fmt.Errorf("queue: position has %d bytes, want %d: %w", len(data), positionBytes, ErrCorrupt)
	}
	copy(p.Queue[:], data[1:])
	p.Next = Address{
		Segment: SegmentID(binary.LittleEndian.Uint32(data[17:])),
		Block:   binary.LittleEndian.Uint32(data[21:]),
		Index:   binary.LittleEndian.Uint16(data[25:]),
	}
	return nil
}
