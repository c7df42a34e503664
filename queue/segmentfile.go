package queue

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"docstore/internal/checksum"
	"docstore/internal/prefetch"
	"docstore/internal/vfs"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// segmentFile is a file of a segment or rewrite, open for reading. Its fields are
// constant except during refresh and mapSealed.
type segmentFile struct {
	path   string
	number SegmentID // of the file name
	file   vfs.File
	// mapping is set for a sealed file that was opened to fetch documents; nil: reads are
	// system calls.
	mapping vfs.Mapping
	info    vfs.Info // when it was opened or refreshed
	header  segmentHeader
	// footer is nil until the file ends in a valid footer.
	footer *segmentFooter
	// relocations maps the original addresses of a rewrite's blocks; nil in an original.
	relocations *relocations
}

// openSegmentFile opens a file and reads its header. The error is errIncomplete if the
// file is too short for a header.
func openSegmentFile(fsys vfs.FS, path string, number SegmentID) (*segmentFile, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	s := &segmentFile{path: path, number: number, file: file}
	if err := s.load(); err != nil {
		file.Close()
		return nil, err
	}
	return s, nil
}

// load reads the footer, the header and the relocations.
func (s *segmentFile) load() error {
	if err := s.refresh(); err != nil {
		return err
	}
	b := make([]byte, headerBytes)
	if err := s.readAt(b, 0); err != nil {
		return err
	}
	header, err := parseHeader(b)
	switch {
	case errors.Is(err, ErrNewerVersion) && s.headerIntact(b):
		return fmt.Errorf("queue: %s: %w", s.path, err)
	case err == nil && !header.holds(s.number):
		err = fmt.Errorf("header names segment %d", header.segment)
	}
	if err != nil {
		if s.footer == nil && s.copyInProgress(0) {
			return errIncomplete
		}
		return s.corruption(0, err)
	}
	s.header = header
	if s.footer != nil && (s.footer.queue != header.queue || s.footer.segment != header.segment) {
		return s.corruption(int64(s.footer.offset), errors.New("footer names another segment"))
	}
	return s.loadRelocations()
}

// headerIntact verifies the checksum of a header of any version.
func (s *segmentFile) headerIntact(b []byte) bool {
	whole := make([]byte, max(16, int(little.Uint16(b[14:]))))
	return s.readAt(whole, 0) == nil && checksum.Update(0, whole[12:]) == little.Uint32(b[8:])
}

// refresh reads the file's size again, and the footer if it has arrived.
func (s *segmentFile) refresh() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.info, s.footer = info, nil
	offset := info.Size - footerBytes
	if offset < headerBytes || offset >= MaxSegmentBytes {
		return nil
	}
	b := make([]byte, footerBytes)
	if err := s.readAt(b, offset); err != nil {
		return err
	}
	if footer, err := parseFooter(b, offset); err == nil {
		s.footer = &footer
	}
	return nil
}

// dictionary reads the segment's dictionary and verifies its hash.
func (s *segmentFile) dictionary() ([]byte, error) {
	b := make([]byte, s.header.dictionary.bytes)
	if err := s.readAt(b, headerBytes); err != nil {
		return nil, err
	}
	if len(b) > 0 && codec.HashDictionary(b) != s.header.dictionary.hash {
		return nil, s.corruption(headerBytes, errors.New("dictionary does not match its hash"))
	}
	return b, nil
}

// limit is the upper bound of the frames' end.
func (s *segmentFile) limit() int64 {
	if s.footer != nil {
		return s.footer.limit()
	}
	return min(s.info.Size, MaxSegmentBytes)
}

// frame reads the frame at offset. It reads and verifies the header and table of a block
// into b; the whole block must end before the limit. Errors about content are
// errIncomplete and *CorruptionError.
func (s *segmentFile) frame(b *block, offset int64) (frameType, error) {
	room := s.limit() - offset
	if room < markBytes {
		return frameNone, s.missing(offset)
	}
	b.bytes = slices.Grow(b.bytes[:0], frameHeadBytes)[:min(frameHeadBytes, room)]
	if err := s.readAt(b.bytes, offset); err != nil {
		return frameNone, err
	}
	switch kind := frameType(b.bytes[4]); kind {
	case frameNone:
		if allZero(b.bytes) {
			return frameNone, s.missing(offset)
		}
		return frameNone, s.corruption(offset, errors.New("frame has no type"))
	case frameMark:
		if err := checkMark(b.bytes[:markBytes], offset); err != nil {
			return frameNone, s.corruption(offset, err)
		}
		return frameMark, nil
	case frameBlock:
		return frameBlock, s.readTable(b, offset, room)
	case frameFooter:
		// A valid footer at the end of the file would have set the limit.
		return frameNone, s.missing(offset)
	default:
		return frameNone, s.corruption(offset, fmt.Errorf("frame is of type %d", kind))
	}
}

// readTable reads the rest of the table of a block whose header is in b.
func (s *segmentFile) readTable(b *block, offset, room int64) error {
	if len(b.bytes) < blockHeaderBytes {
		return s.missing(offset)
	}
	h, err := parseBlockHeader(b.bytes)
	if err != nil {
		return s.corruption(offset, err)
	}
	if h.size() > room {
		return s.missing(offset)
	}
	b.bytes = slices.Grow(b.bytes, int(h.tableBytes))[:h.dataOffset()]
	if err := s.readAt(b.bytes[blockHeaderBytes:], offset+blockHeaderBytes); err != nil {
		return err
	}
	if err := b.parse(); err != nil {
		return s.corruption(offset, err)
	}
	if b.relocated != (s.relocations != nil) {
		return s.corruption(offset, errBlockKind)
	}
	return nil
}

// missing is errIncomplete, or corruption if the file has a footer and is therefore
// complete.
func (s *segmentFile) missing(offset int64) error {
	if s.footer != nil {
		return s.corruption(offset, errors.New("no frame fits between here and the footer"))
	}
	return errIncomplete
}

// markedChain is the chain of the commit mark that frame has read into b.
func (b *block) markedChain() uint32 { return little.Uint32(b.bytes[12:]) }

// readAt fills p from offset. The error is errIncomplete if the file ends before.
func (s *segmentFile) readAt(p []byte, offset int64) error {
	if s.mapping != nil {
		return s.copyMapped(p, offset)
	}
	n, err := s.file.ReadAt(p, offset)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF):
		return errIncomplete
	}
	return s.readError(err)
}

func (s *segmentFile) readError(err error) error {
	return fmt.Errorf("queue: reading segment %d: %w", s.number, err)
}

func (s *segmentFile) corruption(offset int64, reason error) *CorruptionError {
	return &CorruptionError{Path: s.path, Segment: s.number, Offset: offset, Reason: reason.Error()}
}

// scanBytes is the size of the buffer of a search.
const scanBytes = 256 << 10

// markAfter returns the offset of the first valid commit mark at offset or after it, or
// -1. It looks at every byte, so frames in between may be damaged.
func (s *segmentFile) markAfter(offset int64) (int64, error) {
	buffer := make([]byte, max(0, min(scanBytes, s.limit()-offset)))
	for ; offset+markBytes <= s.limit(); offset += scanBytes - markBytes + 1 {
		window := buffer[:min(scanBytes, s.limit()-offset)]
		if err := s.readAt(window, offset); err != nil {
			return -1, err
		}
		for i := 0; i+markBytes <= len(window); i++ {
			if frameType(window[i+4]) != frameMark || int64(little.Uint32(window[i+8:])) != offset+int64(i) {
				continue
			}
			if checkMark(window[i:i+markBytes], offset+int64(i)) == nil {
				return offset + int64(i), nil
			}
		}
	}
	return -1, nil
}

// copyInProgress reports whether the file may still be written or copied, so that a wrong
// frame at offset is not damage. Segments are written in order, so wrong bytes before a
// valid commit mark or footer are damage. If neither follows, the right bytes may still
// arrive.
func (s *segmentFile) copyInProgress(offset int64) bool {
	if s.footer != nil {
		return false
	}
	mark, err := s.markAfter(offset + 1)
	return err == nil && mark < 0
}

// damage interprets an error of the frame at offset: it returns errIncomplete if the
// right bytes may still arrive, a *CorruptionError if not, and other errors unchanged.
func (s *segmentFile) damage(offset int64, err error) error {
	var corruption *CorruptionError
	switch {
	case errors.As(err, &corruption):
		if s.copyInProgress(offset) {
			return errIncomplete
		}
	case errors.Is(err, errIncomplete):
		if !s.copyInProgress(offset) {
			return s.corruption(offset, errors.New("bytes are missing before a commit mark"))
		}
	}
	return err
}

// decoder returns the decoder for the documents of the file.
func (s *segmentFile) decoder(cache *stored.DecoderCache) (codec.Decoder, error) {
	key := stored.Key{Codec: s.header.codec, Dictionary: s.header.dictionary.hash}
	if d := cache.Get(key); d != nil {
		return d, nil
	}
	if _, err := codec.ByID(key.Codec); err != nil {
		return nil, err
	}
	content, err := s.dictionary()
	if err != nil {
		return nil, err
	}
	d, err := cache.Keep(key, content)
	if err != nil {
		return nil, s.corruption(headerBytes, err)
	}
	return d, nil
}

// checkDocuments verifies the documents of the block at offset and returns the damage.
// With a decoder it also decompresses them.
func (s *segmentFile) checkDocuments(b *block, offset int64, dec codec.Decoder) ([]*CorruptionError, error) {
	data, out := getScratch(), getScratch()
	defer data.release()
	defer out.release()
	documents := data.sized(int(b.dataBytes))
	if err := s.readAt(documents, offset+b.dataOffset()); err != nil {
		return nil, err
	}
	var bad []*CorruptionError
	at, _ := b.origin(Address{Segment: s.number, Block: uint32(offset)})
	for i := range b.count {
		e := b.entry(i)
		at.Index = b.index(i)
		err := verifyDocument(at, &e, b.id(e), documents[e.start:e.end])
		if err == nil && dec != nil && e.hasCoded() {
			out.bytes, err = dec.Decode(out.bytes[:0], documents[e.start:e.end], e.rawBytes())
		}
		if err != nil {
			bad = append(bad, s.damagedDocument(offset+b.dataOffset()+int64(e.start), b.id(e), err))
		}
	}
	return bad, nil
}

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

// close closes the file, which was only read. There must be no concurrent reads.
func (s *segmentFile) close() {
	if s.mapping != nil {
		_ = s.mapping.Close()
		return
	}
	_ = s.file.Close()
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

// damagedEntry is the error for a damaged document of the block at offset.
func (s *segmentFile) damagedEntry(b *block, e *entry, offset int64, id []byte, reason error) error {
	return s.damagedDocument(offset+b.dataOffset()+int64(e.start), id, reason)
}

// guard runs fn, and makes an error of a fault in the mapped file.
func (s *segmentFile) guard(fn func() error) (err error) {
	if s.mapping == nil {
		return fn()
	}
	if fault := vfs.Guard(func() { err = fn() }); fault != nil {
		return s.readError(fault)
	}
	return err
}

// damagedDocument is the error for a document whose stored bytes are at offset.
func (s *segmentFile) damagedDocument(offset int64, id []byte, reason error) *CorruptionError {
	c := s.corruption(offset, reason)
	c.ID = string(id)
	return c
}

// verifyDocument compares the stored bytes of a document with the checksum in its entry.
func verifyDocument(at Address, e *entry, id, stored []byte) error {
	if got := documentCRC(at, e.rawAndFlags, id, stored); got != e.crc {
		return wrongChecksum(e.crc, got)
	}
	return nil
}

func wrongChecksum(want, got uint32) error {
	return fmt.Errorf("document's checksum is %08x, its bytes have %08x", want, got)
}

// sameFile reports whether a file is the same and unchanged.
func sameFile(a, b vfs.Info) bool {
	return a.ID == b.ID && a.Size == b.Size && a.ModTime.Equal(b.ModTime)
}

// forked is the error for a file of a queue other than the one that is read.
func (s *segmentFile) forked(want [16]byte) error {
	return fmt.Errorf("%w: %s is of queue %x, not of %x", ErrForked, s.path, s.header.queue, want)
}

// prefetchEntry prefetches what locate reads of an original block of a mapped file.
func (s *segmentFile) prefetchEntry(block int64, index uint16) {
	s.prefetch(block, blockHeaderBytes)
	s.prefetch(block+blockHeaderBytes+entryBytes*int64(max(index, 1)-1), 2*entryBytes)
}

// prefetch prefetches bytes of a mapped file, as far as it has them.
func (s *segmentFile) prefetch(offset, n int64) {
	mapped := s.mapping.Bytes()
	if offset < int64(len(mapped)) {
		prefetch.Bytes(mapped[offset:min(offset+n, int64(len(mapped)))])
	}
}

// tableBytes is the mean length of the header and table of the blocks of a sealed file, and at
// least that up to the entry with the index.
func (s *segmentFile) tableBytes(index uint16) int64 {
	t := &s.footer.totals
	mean := (s.footer.limit() - s.header.firstFrame() - int64(t.stored)) / max(1, int64(t.blocks))
	return max(blockHeaderBytes+entryBytes*(int64(index)+1), mean)
}
