package segment

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// Holds reports whether a file with this header has the documents of segment n.
func (h *Header) Holds(n ID) bool {
	if h.Rewrites == (Run{}) {
		return h.Segment == n
	}
	return h.Rewrites.Covers(n)
}

// Relocations end the frames of a rewrite and map original addresses to its blocks.
//
//	 0  crc u32            of all that follows
//	 4  type u8            4
//	 5  zero [3]
//	 8  offset u32         its own
//	12  rows u32
//	16  settled segment u32, block u32, index u16
//	26  cursor bytes u16
//	28  lost u32           ranges
//	32  last [32]          digest of the last original segment: SHA-256 of its footer
//	64  originals u32      the other original segments
//	68  truncated u32      ranges
//	72  end u32            of the last block of the last original segment
//	76  chain u32          checksum of that block
//	80  originals x { digest [32], end u32, chain u32 }  from the first on; zeros:
//	    unknown, or the segment has no block
//	    rows x { segment u32, block u32, offset u32 }  ascending; offset is the
//	    block's in this file
//	    lost, then truncated x { from and to, each segment u32, block u32, index
//	    u16, zero u16 }
//	    the cursor of the last original block, kept or not
//
// The entries that superseded the dropped ones are before settled: for an index that has
// read the queue up to there, a dropped entry does not exist. Exceptions are the
// addresses in a lost range, from inclusive and to exclusive, whose entries are unknown
// (see Repair), and those in a truncated range, which were removed (see Truncate).
type Relocations struct {
	offset    uint32
	Settled   Address
	Originals []Original // each segment of the run
	Rows      []byte
	rowsAt    int            // offset of the rows in the table
	sums      []uint32       // checksums of mapped rows, see mapped; nil: rows are in memory
	Lost      []AddressRange // ascending
	Truncated []AddressRange // ascending
	Cursor    []byte
}

// Original is the state of a segment that a rewrite replaces.
type Original struct {
	Digest Digest // of the footer; zero: unknown
	End    uint32 // of its last block; 0: no block, or unknown
	Chain  uint32 // checksum of its last block; 0: no block, or unknown
}

// originalBytes is the size of an Original.
const originalBytes = 40

// AddressRange is a range of addresses, from inclusive and to exclusive.
type AddressRange struct{ From, To Address }

// Holds reports whether the address is in the range.
func (r AddressRange) Holds(at Address) bool { return r.From.Compare(at) <= 0 && at.Compare(r.To) < 0 }

const (
	// RelocationsHeadBytes is the size of the fixed part.
	RelocationsHeadBytes = 80
	relocationBytes      = 12
	// LostAddressBytes is the size of an address in a range.
	LostAddressBytes = 12
	lostRangeBytes   = 2 * LostAddressBytes
)

func (r *Relocations) append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, make([]byte, RelocationsHeadBytes)...)
	b := dst[from:]
	b[4] = byte(FrameRelocations)
	Little.PutUint32(b[8:], r.offset)
	Little.PutUint32(b[12:], uint32(r.Count()))
	PutAddress(b[16:], r.Settled)
	Little.PutUint16(b[26:], uint16(len(r.Cursor)))
	Little.PutUint32(b[28:], uint32(len(r.Lost)))
	others, last := r.Originals[:len(r.Originals)-1], r.Last()
	copy(b[32:], last.Digest[:])
	Little.PutUint32(b[64:], uint32(len(others)))
	Little.PutUint32(b[68:], uint32(len(r.Truncated)))
	Little.PutUint32(b[72:], last.End)
	Little.PutUint32(b[76:], last.Chain)
	for _, o := range others {
		dst = append(dst, o.Digest[:]...)
		dst = Little.AppendUint32(dst, o.End)
		dst = Little.AppendUint32(dst, o.Chain)
	}
	dst = append(dst, r.Rows...)
	for _, addresses := range slices.Concat(r.Lost, r.Truncated) {
		var row [lostRangeBytes]byte
		PutAddress(row[:], addresses.From)
		PutAddress(row[LostAddressBytes:], addresses.To)
		dst = append(dst, row[:]...)
	}
	dst = append(dst, r.Cursor...)
	sealFrame(dst[from:])
	return dst
}

// PutAddress writes an address to the first ten bytes of b.
func PutAddress(b []byte, a Address) {
	Little.PutUint32(b, uint32(a.Segment))
	Little.PutUint32(b[4:], a.Block)
	Little.PutUint16(b[8:], a.Index)
}

func addressIn(b []byte) Address {
	return Address{Segment: ID(Little.Uint32(b)), Block: Little.Uint32(b[4:]), Index: Little.Uint16(b[8:])}
}

// RelocationsSize returns the size of the relocations with the head in b.
func RelocationsSize(b []byte) int64 {
	return RelocationsHeadBytes + originalBytes*int64(Little.Uint32(b[64:])) +
		relocationBytes*int64(Little.Uint32(b[12:])) +
		lostRangeBytes*(int64(Little.Uint32(b[28:]))+int64(Little.Uint32(b[68:]))) + int64(Little.Uint16(b[26:]))
}

// ParseRelocations parses the relocations in b, which were found at offset.
func ParseRelocations(b []byte, offset uint32) (*Relocations, error) {
	switch {
	case len(b) < RelocationsHeadBytes || FrameType(b[4]) != FrameRelocations:
		return nil, errors.New("no relocations")
	case !frameIntact(b):
		return nil, errors.New("relocations have a wrong checksum")
	case !allZero(b[5:8]):
		return nil, errors.New("reserved bytes of the relocations are not zero")
	case Little.Uint32(b[8:]) != offset:
		return nil, fmt.Errorf("relocations are at offset %d, were written for %d", offset, Little.Uint32(b[8:]))
	case int64(len(b)) != RelocationsSize(b):
		return nil, fmt.Errorf("relocations have %d bytes, want %d", len(b), RelocationsSize(b))
	case Little.Uint16(b[26:]) > MaxCursorBytes:
		return nil, fmt.Errorf("cursor has %d bytes, more than %d", Little.Uint16(b[26:]), MaxCursorBytes)
	}
	r := &Relocations{offset: offset, Settled: addressIn(b[16:])}
	rows, b := relocationBytes*int(Little.Uint32(b[12:])), bytes.Clone(b)
	rest := b[RelocationsHeadBytes:]
	for range Little.Uint32(b[64:]) {
		r.Originals = append(r.Originals, Original{Digest(rest), Little.Uint32(rest[32:]), Little.Uint32(rest[36:])})
		rest = rest[originalBytes:]
	}
	r.Originals = append(r.Originals, Original{Digest(b[32:]), Little.Uint32(b[72:]), Little.Uint32(b[76:])})
	r.rowsAt = len(b) - len(rest)
	r.Rows = rest[:rows:rows]
	for i := 1; i < r.Count(); i++ {
		before, _ := r.row(i - 1)
		if at, _ := r.row(i); at.Compare(before) <= 0 {
			return nil, fmt.Errorf("relocations are not ascending: block %s follows block %s", at, before)
		}
	}
	r.Lost, rest = addressRanges(rest[rows:], Little.Uint32(b[28:]))
	r.Truncated, r.Cursor = addressRanges(rest, Little.Uint32(b[68:]))
	return r, nil
}

// addressRanges parses count ranges and returns the rest of b.
func addressRanges(b []byte, count uint32) (ranges []AddressRange, rest []byte) {
	for range count {
		ranges = append(ranges, AddressRange{addressIn(b), addressIn(b[LostAddressBytes:])})
		b = b[lostRangeBytes:]
	}
	return ranges, b
}

// IsLost reports whether the address is in a lost range.
func (r *Relocations) IsLost(at Address) bool {
	return slices.ContainsFunc(r.Lost, func(lost AddressRange) bool { return lost.Holds(at) })
}

// Last is the last segment of the run.
func (r *Relocations) Last() *Original { return &r.Originals[len(r.Originals)-1] }

// Count returns the number of rows.
func (r *Relocations) Count() int { return len(r.Rows) / relocationBytes }

// add adds a row: the block with the original address is at offset.
func (r *Relocations) add(at Address, offset uint32) {
	r.Rows = Little.AppendUint32(r.Rows, uint32(at.Segment))
	r.Rows = Little.AppendUint32(r.Rows, at.Block)
	r.Rows = Little.AppendUint32(r.Rows, offset)
}

// row returns the original address of block i and its offset in the rewrite.
func (r *Relocations) row(i int) (at Address, offset int64) {
	b := r.Rows[relocationBytes*i:]
	return Address{Segment: ID(Little.Uint32(b)), Block: Little.Uint32(b[4:])}, int64(Little.Uint32(b[8:]))
}

// From returns the first row with an original block address of at least block.
func (r *Relocations) From(block Address) int {
	block.Index = 0
	return sort.Search(r.Count(), func(i int) bool {
		at, _ := r.row(i)
		return at.Compare(block) >= 0
	})
}

// LoadRelocations reads the relocations of a rewrite, which must have a footer.
func (s *File) LoadRelocations() error {
	rewrite := s.Header.Rewrites != Run{}
	switch {
	case rewrite && s.Footer == nil:
		return ErrPartial
	case s.Footer == nil:
		return nil
	case rewrite != (s.Footer.Relocations > 0):
		return s.Corruption(int64(s.Footer.Offset), errors.New("only one of header and footer is that of a rewrite"))
	case !rewrite:
		return nil
	}
	size := int64(s.Footer.Offset) - s.Footer.Limit()
	if size < RelocationsHeadBytes || s.Footer.Limit() < s.Header.FirstFrame() {
		return s.Corruption(int64(s.Footer.Offset), errors.New("relocations do not fit before the footer"))
	}
	b := make([]byte, size)
	if err := s.ReadAt(b, s.Footer.Limit()); err != nil {
		return err
	}
	table, err := ParseRelocations(b, s.Footer.Relocations)
	if run := s.Header.Rewrites; err == nil && len(table.Originals) != int(run.Last-run.First)+1 {
		err = fmt.Errorf("relocations describe %d segments, the header names segments %d to %d", len(table.Originals), run.First, run.Last)
	}
	if err != nil {
		return s.Corruption(s.Footer.Limit(), err)
	}
	s.Relocations = table
	return nil
}

// Digest returns the digest of the last segment in this sealed file, as in the header of
// the next segment.
func (s *File) Digest() Digest {
	return s.DigestOf(max(s.Number, s.Header.Rewrites.Last))
}

// DigestOf returns the digest of segment n of this sealed file; zero: unknown.
func (s *File) DigestOf(n ID) Digest {
	if s.Relocations != nil {
		return s.Relocations.Originals[n-s.Header.Rewrites.First].Digest
	}
	return s.Footer.Digest()
}

// Before returns the digest of the segment before segment n of this file; zero: unknown.
func (s *File) Before(n ID) Digest {
	if s.Relocations != nil && n > s.Header.Rewrites.First {
		return s.DigestOf(n - 1)
	}
	return s.Header.Previous
}

// Truncates reports whether this is a rewrite with truncated entries at the end of
// segment n.
func (s *File) Truncates(n ID) bool {
	return s.Relocations != nil && slices.ContainsFunc(s.Relocations.Truncated, func(r AddressRange) bool {
		return r.From.Segment <= n && n < r.To.Segment
	})
}

// Finding an entry of a rewrite. For fetches, the rows of the relocations are read from
// the mapping of the file. They are verified when the file is opened, but their bytes may
// change later. A row that is found leads to a document, which is verified. The answer
// that there is no row is given only after the rows have been verified again, so that
// damage never makes a document appear to be gone. The same holds for an entry of a
// block.

// rowsPerSum is the number of rows per checksum: 3 KiB, verified in 0.2 us. The checksums
// take 1/768 of the size of the table.
const rowsPerSum = 256

// mapped returns the relocations with their rows in a mapping that begins with them. It
// keeps only the fields that fetches need.
func (r *Relocations) mapped(mapping []byte) *Relocations {
	kept := &Relocations{
		offset: r.offset, Settled: r.Settled, Lost: r.Lost, Truncated: r.Truncated, rowsAt: r.rowsAt,
		Rows: mapping[r.rowsAt:][:len(r.Rows):len(r.Rows)], sums: []uint32{},
	}
	for i := 0; i < r.Count(); i += rowsPerSum {
		kept.sums = append(kept.sums, checksum.Update(0, r.Rows[relocationBytes*i:relocationBytes*min(i+rowsPerSum, r.Count())]))
	}
	return kept
}

// ErrAbsent states that a rewrite does not have the address, as verified rows or a verified table show.
var ErrAbsent = errors.New("the rewrite does not have the address")

// Find returns the offset in this file of the block with the address. If a rewrite does not
// have the address, the error is ErrAbsent.
func (s *File) Find(at Address) (int64, error) {
	r := s.Relocations
	if r == nil {
		return int64(at.Block), nil
	}
	var i int
	var block Address
	var offset int64
	search := func() {
		if i = r.From(at); i < r.Count() {
			block, offset = r.row(i)
		}
	}
	if r.sums == nil {
		search()
	} else if err := vfs.Guard(search); err != nil {
		return 0, s.readError(err)
	}
	if block.Index = at.Index; block == at {
		return offset, nil
	}
	if err := s.verifyBetween(i, at); err != nil {
		return 0, err
	}
	return 0, ErrAbsent
}

// verifyBetween verifies that row i and the row before it enclose an address without a
// row.
func (s *File) verifyBetween(i int, at Address) error {
	r := s.Relocations
	if r.sums == nil {
		return nil
	}
	at.Index = 0
	if i > 0 {
		before, err := s.verifiedRow(i - 1)
		if err != nil {
			return err
		}
		if before.Compare(at) >= 0 {
			return s.changedRelocations()
		}
	}
	if i < r.Count() {
		after, err := s.verifiedRow(i)
		if err != nil {
			return err
		}
		if after.Compare(at) <= 0 {
			return s.changedRelocations()
		}
	}
	return nil
}

// verifiedRow returns the original address in row i, from a verified copy.
func (s *File) verifiedRow(i int) (Address, error) {
	r, first := s.Relocations, i-i%rowsPerSum
	spare := GetScratch()
	defer spare.Release()
	rows := spare.Sized(relocationBytes * (min(first+rowsPerSum, r.Count()) - first))
	if err := s.ReadAt(rows, int64(r.offset)+int64(r.rowsAt)+relocationBytes*int64(first)); err != nil {
		return Address{}, err
	}
	if checksum.Update(0, rows) != r.sums[first/rowsPerSum] {
		return Address{}, s.changedRelocations()
	}
	at, _ := (&Relocations{Rows: rows}).row(i - first)
	return at, nil
}

func (s *File) changedRelocations() error {
	return s.Corruption(int64(s.Relocations.offset), errors.New("relocations have changed since the file was opened"))
}

// verifyEntry verifies the table of the block at offset, to which the relocations map an
// address, and that it has the entry. If not, the error is ErrAbsent.
func (s *File) verifyEntry(offset int64, at Address) error {
	var b Block
	if _, err := s.Frame(&b, offset); err != nil {
		return err
	}
	if origin, _ := b.Origin(at); origin.Segment != at.Segment || origin.Block != at.Block {
		return s.Corruption(offset, errors.New("block is not the one that the relocations name"))
	}
	for i := range b.Count {
		if b.Index(i) == at.Index {
			return nil
		}
	}
	return ErrAbsent
}

// ChainInto adds to the table of a rewrite the state of a file that it replaces: its
// segments, the lost and truncated ranges, and its cursor if it has one.
func (s *File) ChainInto(table *Relocations) error {
	if s.Relocations != nil {
		table.Originals = append(table.Originals, s.Relocations.Originals...)
		table.Lost = append(table.Lost, s.Relocations.Lost...)
		table.Truncated = append(table.Truncated, s.Relocations.Truncated...)
		if len(s.Relocations.Cursor) > 0 {
			table.Cursor = s.Relocations.Cursor
		}
		return nil
	}
	o := Original{Digest: s.Footer.Digest()}
	if s.Footer.LastBlock > 0 {
		var b Block
		if _, err := s.Frame(&b, int64(s.Footer.LastBlock)); err != nil {
			return err
		}
		o.End, o.Chain = s.Footer.LastBlock+uint32(b.Size()), b.CRC
		table.Cursor = slices.Clone(b.Cursor())
	}
	table.Originals = append(table.Originals, o)
	return nil
}

// RelocatedBlock reads block i of a rewrite into b and returns its original address.
func (s *File) RelocatedBlock(b *Block, i int) (Address, error) {
	at, offset := s.Relocations.row(i)
	if _, err := s.Frame(b, offset); err != nil {
		return at, err
	}
	if origin, _ := b.Origin(at); origin != at {
		return at, s.Corruption(offset, errors.New("block is not the one that the relocations name"))
	}
	return at, nil
}

// AfterBlock returns the address of the first entry after a block of this file that has
// the original address at. If the last entries of the block were truncated, it is the
// address of the first of these.
func (s *File) AfterBlock(b *Block, at Address) Address {
	if s.Relocations != nil {
		for _, r := range s.Relocations.Truncated {
			if r.From.Segment == at.Segment && r.From.Block == at.Block {
				return r.From
			}
		}
	}
	_, end := b.Origin(at)
	return Address{Segment: at.Segment, Block: end}
}

// HasEntry reports whether this is a rewrite whose tables, verified, have the entry with
// the address.
func (s *File) HasEntry(at Address) bool {
	if s.Relocations == nil {
		return false
	}
	block, err := s.Find(at)
	return err == nil && s.verifyEntry(block, at) == nil
}
