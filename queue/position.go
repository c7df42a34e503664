package queue

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"docstore/queue/internal/segment"
	"docstore/queue/stored"
)

// SegmentID is the number of a segment. A queue's first segment is 1; 0 is no
// segment.
type SegmentID = stored.SegmentID

// Address is the permanent address of one version of a document, or of one delete.
// Addresses are assigned in ascending order: of two addresses of the same id the greater
// one is the newer version.
type Address = stored.Address

// Place is where Tail has found a document, with its lengths and its checksum. With it a
// fetch reads only the document: the block's table, which has the same, lies mostly on
// another page. Compaction changes the places of documents, and the holder may have stored the
// Place in a file that is damaged. The checksum covers the address, the id and the document. If
// it is not that of the document at the Place, the table is read, and the error is ErrOtherPlace
// if it is not that of the table either. The zero Place is unknown.
//
// StoredBytes and RawBytes are the lengths of the document as stored and decoded, Checksum is its
// checksum. Mask returns the Place with the exclusive or of its checksum and a number: a holder
// that keeps other values with the Place makes them part of the checksum with it. Matches reports
// whether a stored form has the checksum in the Place: an equal document that was encoded again
// does not, nor does another one at the same address in another history of the queue.
type Place = segment.Place

// ParseAddress parses the form that String returns.
func ParseAddress(s string) (Address, error) {
	var parts [3]uint64
	fields := strings.Split(s, "/")
	ok := len(fields) == len(parts)
	for i := 0; ok && i < len(parts); i++ {
		var err error
		parts[i], err = strconv.ParseUint(fields[i], 10, []int{32, 32, 16}[i])
		ok = err == nil
	}
	a := Address{Segment: SegmentID(parts[0]), Block: uint32(parts[1]), Index: uint16(parts[2])}
	if !ok || a.Segment == 0 {
		return Address{}, fmt.Errorf("queue: address %q: want SEGMENT/BLOCK/INDEX, for example 3/128/0", s)
	}
	return a, nil
}

// Position is a place between two entries of a queue: all entries before Next have been
// read. The zero Position is the start of any queue.
//
// A Position also identifies the content before Next, so that a reader detects a queue
// whose content was replaced. Two Positions at one place are equal unless one of them
// identifies less of the content: see SamePlace.
type Position struct {
	Queue [16]byte // the queue's id; zero only in the zero Position
	Next  Address  // of the next entry, existing or future
	Proof Proof
}

// Proof identifies the content before a Position. Zero fields are unknown and
// match any content.
type Proof struct {
	// Footer is the first half of the digest of the previous segment's footer, as the
	// header of Next.Segment holds it. Segment 1 has none.
	Footer FooterDigest
	// Chain is the checksum of the last block of Next.Segment that begins before the
	// Position. It covers the checksums of all blocks before it.
	Chain uint32
}

// FooterDigest is the first half of the SHA-256 of a segment's footer.
type FooterDigest [16]byte

// IsZero reports whether p is the zero Position.
func (p Position) IsZero() bool { return p == Position{} }

// SamePlace reports whether two Positions name the same place in the same queue,
// whatever their proofs.
func (p Position) SamePlace(other Position) bool {
	return p.Queue == other.Queue && p.Next == other.Next
}

// String is the queue's id in hex, a colon and the address.
func (p Position) String() string {
	return hex.EncodeToString(p.Queue[:]) + ":" + p.Next.String()
}

const (
	positionVersion = 0
	// PositionBytes is the length of an encoded Position.
	PositionBytes = 1 + 16 + 4 + 4 + 2 + 16 + 4
)

// AppendBinary appends the result of MarshalBinary.
func (p Position) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, positionVersion)
	dst = append(dst, p.Queue[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.Next.Segment))
	dst = binary.LittleEndian.AppendUint32(dst, p.Next.Block)
	dst = binary.LittleEndian.AppendUint16(dst, p.Next.Index)
	dst = append(dst, p.Proof.Footer[:]...)
	return binary.LittleEndian.AppendUint32(dst, p.Proof.Chain), nil
}

// MarshalBinary returns 47 bytes, little-endian: a version byte, the queue's id,
// the address as segment u32, block u32, index u16, and the proof as footer [16],
// chain u32.
func (p Position) MarshalBinary() ([]byte, error) {
	return p.AppendBinary(make([]byte, 0, PositionBytes))
}

// UnmarshalBinary reads the result of MarshalBinary. On an error it leaves p
// unchanged.
func (p *Position) UnmarshalBinary(data []byte) error {
	if len(data) > 0 && data[0] > positionVersion {
		return fmt.Errorf("queue: position of version %d: %w", data[0], ErrNewerVersion)
	}
	if len(data) != PositionBytes {
		return fmt.Errorf("queue: position has %d bytes, want %d: %w", len(data), PositionBytes, ErrCorrupt)
	}
	copy(p.Queue[:], data[1:])
	p.Next = Address{
		Segment: SegmentID(binary.LittleEndian.Uint32(data[17:])),
		Block:   binary.LittleEndian.Uint32(data[21:]),
		Index:   binary.LittleEndian.Uint16(data[25:]),
	}
	copy(p.Proof.Footer[:], data[27:])
	p.Proof.Chain = binary.LittleEndian.Uint32(data[43:])
	return nil
}
