package queue

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// holds reports whether a file with this header has the documents of segment n.
func (h *segmentHeader) holds(n SegmentID) bool {
	if h.rewrites == (rewriteRun{}) {
		return h.segment == n
	}
	return h.rewrites.covers(n)
}

// relocations end the frames of a rewrite and map original addresses to its blocks.
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
type relocations struct {
	offset    uint32
	settled   Address
	originals []original // each segment of the run
	rows      []byte
	rowsAt    int            // offset of the rows in the table
	sums      []uint32       // checksums of mapped rows, see mapped; nil: rows are in memory
	lost      []addressRange // ascending
	truncated []addressRange // ascending
	cursor    []byte
}

// original is the state of a segment that a rewrite replaces.
type original struct {
	digest digest // of the footer; zero: unknown
	end    uint32 // of its last block; 0: no block, or unknown
	chain  uint32 // checksum of its last block; 0: no block, or unknown
}

const originalBytes = 40

// addressRange is a range of addresses, from inclusive and to exclusive.
type addressRange struct{ from, to Address }

func (r addressRange) holds(at Address) bool { return r.from.Compare(at) <= 0 && at.Compare(r.to) < 0 }

const (
	relocationsHeadBytes = 80
	relocationBytes      = 12
	lostAddressBytes     = 12
	lostRangeBytes       = 2 * lostAddressBytes
)

func (r *relocations) append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, make([]byte, relocationsHeadBytes)...)
	b := dst[from:]
	b[4] = byte(frameRelocations)
	little.PutUint32(b[8:], r.offset)
	little.PutUint32(b[12:], uint32(r.count()))
	putAddress(b[16:], r.settled)
	little.PutUint16(b[26:], uint16(len(r.cursor)))
	little.PutUint32(b[28:], uint32(len(r.lost)))
	others, last := r.originals[:len(r.originals)-1], r.last()
	copy(b[32:], last.digest[:])
	little.PutUint32(b[64:], uint32(len(others)))
	little.PutUint32(b[68:], uint32(len(r.truncated)))
	little.PutUint32(b[72:], last.end)
	little.PutUint32(b[76:], last.chain)
	for _, o := range others {
		dst = append(dst, o.digest[:]...)
		dst = little.AppendUint32(dst, o.end)
		dst = little.AppendUint32(dst, o.chain)
	}
	dst = append(dst, r.rows...)
	for _, addresses := range slices.Concat(r.lost, r.truncated) {
		var row [lostRangeBytes]byte
		putAddress(row[:], addresses.from)
		putAddress(row[lostAddressBytes:], addresses.to)
		dst = append(dst, row[:]...)
	}
	dst = append(dst, r.cursor...)
	sealFrame(dst[from:])
	return dst
}

// putAddress writes an address to the first ten bytes of b.
func putAddress(b []byte, a Address) {
	little.PutUint32(b, uint32(a.Segment))
	little.PutUint32(b[4:], a.Block)
	little.PutUint16(b[8:], a.Index)
}

func addressIn(b []byte) Address {
	return Address{Segment: SegmentID(little.Uint32(b)), Block: little.Uint32(b[4:]), Index: little.Uint16(b[8:])}
}

// relocationsSize returns the size of the relocations with the head in b.
func relocationsSize(b []byte) int64 {
	return relocationsHeadBytes + originalBytes*int64(little.Uint32(b[64:])) +
		relocationBytes*int64(little.Uint32(b[12:])) +
		lostRangeBytes*(int64(little.Uint32(b[28:]))+int64(little.Uint32(b[68:]))) + int64(little.Uint16(b[26:]))
}

func parseRelocations(b []byte, offset uint32) (*relocations, error) {
	switch {
	case len(b) < relocationsHeadBytes || frameType(b[4]) != frameRelocations:
		return nil, errors.New("no relocations")
	case !frameIntact(b):
		return nil, errors.New("relocations have a wrong checksum")
	case !allZero(b[5:8]):
		return nil, errors.New("reserved bytes of the relocations are not zero")
	case little.Uint32(b[8:]) != offset:
		return nil, fmt.Errorf("relocations are at offset %d, were written for %d", offset, little.Uint32(b[8:]))
	case int64(len(b)) != relocationsSize(b):
		return nil, fmt.Errorf("relocations have %d bytes, want %d", len(b), relocationsSize(b))
	case little.Uint16(b[26:]) > MaxCursorBytes:
		return nil, fmt.Errorf("cursor has %d bytes, more than %d", little.Uint16(b[26:]), MaxCursorBytes)
	}
	r := &relocations{offset: offset, settled: addressIn(b[16:])}
	rows, b := relocationBytes*int(little.Uint32(b[12:])), bytes.Clone(b)
	rest := b[relocationsHeadBytes:]
	for range little.Uint32(b[64:]) {
		r.originals = append(r.originals, original{digest(rest), little.Uint32(rest[32:]), little.Uint32(rest[36:])})
		rest = rest[originalBytes:]
	}
	r.originals = append(r.originals, original{digest(b[32:]), little.Uint32(b[72:]), little.Uint32(b[76:])})
	r.rowsAt = len(b) - len(rest)
	r.rows = rest[:rows:rows]
	for i := 1; i < r.count(); i++ {
		before, _ := r.row(i - 1)
		if at, _ := r.row(i); at.Compare(before) <= 0 {
			return nil, fmt.Errorf("relocations are not ascending: block %s follows block %s", at, before)
		}
	}
	r.lost, rest = addressRanges(rest[rows:], little.Uint32(b[28:]))
	r.truncated, r.cursor = addressRanges(rest, little.Uint32(b[68:]))
	return r, nil
}

// addressRanges parses count ranges and returns the rest of b.
func addressRanges(b []byte, count uint32) (ranges []addressRange, rest []byte) {
	for range count {
		ranges = append(ranges, addressRange{addressIn(b), addressIn(b[lostAddressBytes:])})
		b = b[lostRangeBytes:]
	}
	return ranges, b
}

// isLost reports whether the address is in a lost range.
func (r *relocations) isLost(at Address) bool {
	return slices.ContainsFunc(r.lost, func(lost addressRange) bool { return lost.holds(at) })
}

// last is the last segment of the run.
func (r *relocations) last() *original { return &r.originals[len(r.originals)-1] }

func (r *relocations) count() int { return len(r.rows) / relocationBytes }

// add adds a row: the block with the original address is at offset.
func (r *relocations) add(at Address, offset uint32) {
	r.rows = little.AppendUint32(r.rows, uint32(at.Segment))
	r.rows = little.AppendUint32(r.rows, at.Block)
	r.rows = little.AppendUint32(r.rows, offset)
}

// row returns the original address of block i and its offset in the rewrite.
func (r *relocations) row(i int) (at Address, offset int64) {
	b := r.rows[relocationBytes*i:]
	return Address{Segment: SegmentID(little.Uint32(b)), Block: little.Uint32(b[4:])}, int64(little.Uint32(b[8:]))
}

// from returns the first row with an original block address of at least block.
func (r *relocations) from(block Address) int {
	block.Index = 0
	return sort.Search(r.count(), func(i int) bool {
		at, _ := r.row(i)
		return at.Compare(block) >= 0
	})
}

// loadRelocations reads the relocations of a rewrite, which must have a footer.
func (s *segmentFile) loadRelocations() error {
	rewrite := s.header.rewrites != rewriteRun{}
	switch {
	case rewrite && s.footer == nil:
		return errIncomplete
	case s.footer == nil:
		return nil
	case rewrite != (s.footer.relocations > 0):
		return s.corruption(int64(s.footer.offset), errors.New("only one of header and footer is that of a rewrite"))
	case !rewrite:
		return nil
	}
	size := int64(s.footer.offset) - s.footer.limit()
	if size < relocationsHeadBytes || s.footer.limit() < s.header.firstFrame() {
		return s.corruption(int64(s.footer.offset), errors.New("relocations do not fit before the footer"))
	}
	b := make([]byte, size)
	if err := s.readAt(b, s.footer.limit()); err != nil {
		return err
	}
	table, err := parseRelocations(b, s.footer.relocations)
	if run := s.header.rewrites; err == nil && len(table.originals) != int(run.last-run.first)+1 {
		err = fmt.Errorf("relocations describe %d segments, the header names segments %d to %d", len(table.originals), run.first, run.last)
	}
	if err != nil {
		return s.corruption(s.footer.limit(), err)
	}
	s.relocations = table
	return nil
}

// digest returns the digest of the last segment in this sealed file, as in the header of
// the next segment.
func (s *segmentFile) digest() digest {
	return s.digestOf(max(s.number, s.header.rewrites.last))
}

// digestOf returns the digest of segment n of this sealed file; zero: unknown.
func (s *segmentFile) digestOf(n SegmentID) digest {
	if s.relocations != nil {
		return s.relocations.originals[n-s.header.rewrites.first].digest
	}
	return s.footer.digest()
}

// before returns the digest of the segment before segment n of this file; zero: unknown.
func (s *segmentFile) before(n SegmentID) digest {
	if s.relocations != nil && n > s.header.rewrites.first {
		return s.digestOf(n - 1)
	}
	return s.header.previous
}

// truncates reports whether this is a rewrite with truncated entries at the end of
// segment n.
func (s *segmentFile) truncates(n SegmentID) bool {
	return s.relocations != nil && slices.ContainsFunc(s.relocations.truncated, func(r addressRange) bool {
		return r.from.Segment <= n && n < r.to.Segment
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
func (r *relocations) mapped(mapping []byte) *relocations {
	kept := &relocations{
		offset: r.offset, settled: r.settled, lost: r.lost, truncated: r.truncated, rowsAt: r.rowsAt,
		rows: mapping[r.rowsAt:][:len(r.rows):len(r.rows)], sums: []uint32{},
	}
	for i := 0; i < r.count(); i += rowsPerSum {
		kept.sums = append(kept.sums, checksum.Update(0, r.rows[relocationBytes*i:relocationBytes*min(i+rowsPerSum, r.count())]))
	}
	return kept
}

// errAbsent: a rewrite does not have the address, as verified rows or a verified table show.
var errAbsent = errors.New("the rewrite does not have the address")

// find returns the offset in this file of the block with the address. If a rewrite does not
// have the address, the error is errAbsent.
func (s *segmentFile) find(at Address) (int64, error) {
	r := s.relocations
	if r == nil {
		return int64(at.Block), nil
	}
	var i int
	var block Address
	var offset int64
	search := func() {
		if i = r.from(at); i < r.count() {
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
	return 0, errAbsent
}

// verifyBetween verifies that row i and the row before it enclose an address without a
// row.
func (s *segmentFile) verifyBetween(i int, at Address) error {
	r := s.relocations
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
	if i < r.count() {
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
func (s *segmentFile) verifiedRow(i int) (Address, error) {
	r, first := s.relocations, i-i%rowsPerSum
	spare := getScratch()
	defer spare.release()
	rows := spare.sized(relocationBytes * (min(first+rowsPerSum, r.count()) - first))
	if err := s.readAt(rows, int64(r.offset)+int64(r.rowsAt)+relocationBytes*int64(first)); err != nil {
		return Address{}, err
	}
	if checksum.Update(0, rows) != r.sums[first/rowsPerSum] {
		return Address{}, s.changedRelocations()
	}
	at, _ := (&relocations{rows: rows}).row(i - first)
	return at, nil
}

func (s *segmentFile) changedRelocations() error {
	return s.corruption(int64(s.relocations.offset), errors.New("relocations have changed since the file was opened"))
}

// verifyEntry verifies the table of the block at offset, to which the relocations map an
// address, and that it has the entry. If not, the error is errAbsent.
func (s *segmentFile) verifyEntry(offset int64, at Address) error {
	var b block
	if _, err := s.frame(&b, offset); err != nil {
		return err
	}
	if origin, _ := b.origin(at); origin.Segment != at.Segment || origin.Block != at.Block {
		return s.corruption(offset, errors.New("block is not the one that the relocations name"))
	}
	for i := range b.count {
		if b.index(i) == at.Index {
			return nil
		}
	}
	return errAbsent
}

// chainInto adds to the table of a rewrite the state of a file that it replaces: its
// segments, the lost and truncated ranges, and its cursor if it has one.
func (s *segmentFile) chainInto(table *relocations) error {
	if s.relocations != nil {
		table.originals = append(table.originals, s.relocations.originals...)
		table.lost = append(table.lost, s.relocations.lost...)
		table.truncated = append(table.truncated, s.relocations.truncated...)
		if len(s.relocations.cursor) > 0 {
			table.cursor = s.relocations.cursor
		}
		return nil
	}
	o := original{digest: s.footer.digest()}
	if s.footer.lastBlock > 0 {
		var b block
		if _, err := s.frame(&b, int64(s.footer.lastBlock)); err != nil {
			return err
		}
		o.end, o.chain = s.footer.lastBlock+uint32(b.size()), b.crc
		table.cursor = slices.Clone(b.cursor())
	}
	table.originals = append(table.originals, o)
	return nil
}

// relocatedBlock reads block i of a rewrite into b and returns its original address.
func (s *segmentFile) relocatedBlock(b *block, i int) (Address, error) {
	at, offset := s.relocations.row(i)
	if _, err := s.frame(b, offset); err != nil {
		return at, err
	}
	if origin, _ := b.origin(at); origin != at {
		return at, s.corruption(offset, errors.New("block is not the one that the relocations name"))
	}
	return at, nil
}

// afterBlock returns the address of the first entry after a block of this file that has
// the original address at. If the last entries of the block were truncated, it is the
// address of the first of these.
func (s *segmentFile) afterBlock(b *block, at Address) Address {
	if s.relocations != nil {
		for _, r := range s.relocations.truncated {
			if r.from.Segment == at.Segment && r.from.Block == at.Block {
				return r.from
			}
		}
	}
	_, end := b.origin(at)
	return Address{Segment: at.Segment, Block: end}
}

// hasEntry reports whether this is a rewrite whose tables, verified, have the entry with
// the address.
func (s *segmentFile) hasEntry(at Address) bool {
	if s.relocations == nil {
		return false
	}
	block, err := s.find(at)
	return err == nil && s.verifyEntry(block, at) == nil
}
