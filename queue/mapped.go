package queue

import "docstore/internal/vfs"

// Mapped segments. Documents of a sealed segment are read from a mapping of its
// file, which saves the system calls. Its bytes are only ever copied out, in
// copyMapped, and what is made of them is made of the copy: it is the copy that
// the checksum is computed of and that is decoded. So it makes no difference if
// somebody writes into the file, as rsync --inplace does over a segment that was
// sealed before: such bytes fail their checksum, as they would had they been
// read. A file that is cut under its mapping is a signal, which vfs.Guard makes
// an error.
//
// A segment without a valid footer grows, and is read by system calls.

// mapSealed maps a sealed segment for fetching. Where that cannot be done, for
// want of address space, say, it is read by system calls.
func (s *segmentFile) mapSealed() {
	if s.footer == nil {
		return
	}
	mapping, err := s.file.Map(s.info.Size)
	if err != nil {
		return
	}
	// Look-ups are scattered. A document that is not in memory brings 12 KiB of its
	// segment there and takes 0.15 ms; with the kernel's reading around it, 500 KiB
	// and twice the time.
	_ = mapping.Advise(vfs.AdviseRandom)
	s.mapping = mapping
	_ = s.file.Close() // a mapping needs no descriptor
	s.file = nil
	if s.relocations != nil {
		s.relocations = s.relocations.mapped(s.mapping.Bytes()[s.footer.limit():])
	}
}

// close closes the file. Nobody may be reading.
func (s *segmentFile) close() error {
	if s.mapping != nil {
		return s.mapping.Close()
	}
	return s.file.Close()
}

// copyMapped is readAt from the mapping, and the only place that touches it.
func (s *segmentFile) copyMapped(p []byte, offset int64) error {
	mapped := s.mapping.Bytes()
	if offset < 0 || offset > int64(len(mapped)) || int64(len(p)) > int64(len(mapped))-offset {
		return errIncomplete
	}
	if err := vfs.Guard(func() { copy(p, mapped[offset:]) }); err != nil {
		return s.readError(err)
	}
	return nil
}
