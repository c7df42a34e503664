package queue

import "docstore/internal/vfs"

// Mapped segments. Documents of a sealed segment are read from a mapping of its file,
// without system calls. Bytes are copied before they are verified or decoded, so a
// concurrent write to the file (rsync --inplace) is detected as a wrong checksum. Access
// to a file that was cut raises a signal, which vfs.Guard turns into an error.
//
// A segment without a valid footer grows and is read by system calls.

// mapSealed maps a sealed segment for fetches. If that fails, for lack of address space
// for example, the file is read by system calls.
func (s *segmentFile) mapSealed() {
	if s.footer == nil {
		return
	}
	mapping, err := s.file.Map(s.info.Size)
	if err != nil {
		return
	}
	// Lookups are scattered. With random access a page fault reads 12 KiB and takes 0.15
	// ms; with readahead it reads 500 KiB and takes twice as long.
	_ = mapping.Advise(vfs.AdviseRandom)
	s.mapping = mapping
	_ = s.file.Close() // a mapping needs no descriptor
	s.file = nil
	if s.relocations != nil {
		s.relocations = s.relocations.mapped(s.mapping.Bytes()[s.footer.limit():])
	}
}

// close closes the file. There must be no concurrent reads.
func (s *segmentFile) close() error {
	if s.mapping != nil {
		return s.mapping.Close()
	}
	return s.file.Close()
}

// copyMapped is readAt for a mapped file.
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
