package queue

import (
	"errors"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// Finding an entry of a rewrite. Where documents are fetched from, the rows of the
// relocations are not in the memory of the process but in the mapping of the file. They
// were verified when the file was opened, and their bytes may have changed since. A row
// that is found leads to a document, which is verified. That there is no row is said
// only of rows that were verified again, so that damage never makes a document appear
// to be gone. The same holds for an entry within a block.

// rowsPerSum is how many rows a checksum covers: 3 KiB, which are verified in 0.2 us.
// The checksums take a 768th of the table.
const rowsPerSum = 256

// mapped returns the relocations with their rows in a mapping, of the bytes from offset
// on. They keep only what fetching documents needs.
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

// find is the offset of the block with the address in this file.
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
	return 0, s.absent(at)
}

// verifyBetween verifies that the block of an address would stand between row i and the
// row before it.
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
		behind, err := s.verifiedRow(i)
		if err != nil {
			return err
		}
		if behind.Compare(at) <= 0 {
			return s.changedRelocations()
		}
	}
	return nil
}

// verifiedRow returns the original address in row i of a copy that it verifies.
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

// verifyEntry verifies the table of the block that the relocations name for an address,
// and that it has the entry. The error is that of absent if it does not.
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
	return s.absent(at)
}
