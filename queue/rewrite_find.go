package queue

import (
	"errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

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
