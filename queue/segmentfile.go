package queue

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// errIncomplete: the file ends before the bytes that were to be read, or they
// have never been written. They may still come.
var errIncomplete = errors.New("bytes are not there yet")

var errBlockKind = errors.New("block is relocated in an original, or not relocated in a rewrite")

// segmentFile is a segment's file, open for reading. Its fields do not change
// once it is open, except by refresh and mapSealed.
type segmentFile struct {
	path   string
	number SegmentID // by its name
	file   vfs.File
	// mapping is of a sealed file that was opened to fetch documents; nil: readAt
	// makes system calls.
	mapping vfs.Mapping
	info    vfs.Info // when it was opened or refreshed
	header  segmentHeader
	// footer is nil as long as the file does not end in a valid one: while it is
	// being written or copied.
	footer *segmentFooter
	// relocations is where the blocks of a rewrite stood; nil in an original.
	relocations *relocations
}

// openSegmentFile opens a file and reads its header. A file that is too short
// to have one is errIncomplete.
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

// load reads what is known of a file by its ends.
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
		err = fmt.Errorf("header is that of segment %d", header.segment)
	}
	if err != nil {
		if s.footer == nil && s.copyUnderWay(0) {
			return errIncomplete
		}
		return s.corruption(0, err)
	}
	s.header = header
	if s.footer != nil && (s.footer.queue != header.queue || s.footer.segment != header.segment) {
		return s.corruption(int64(s.footer.offset), errors.New("footer is that of another segment"))
	}
	return s.loadRelocations()
}

// headerIntact tells whether a header of any version has its checksum.
func (s *segmentFile) headerIntact(b []byte) bool {
	whole := make([]byte, max(16, int(little.Uint16(b[14:]))))
	return s.readAt(whole, 0) == nil && checksum.Update(0, whole[12:]) == little.Uint32(b[8:])
}

// refresh looks at the file's size anew and at the footer that may have come.
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

// dictionary reads the segment's dictionary. Its hash is its checksum.
func (s *segmentFile) dictionary() ([]byte, error) {
	b := make([]byte, s.header.dictionary.bytes)
	if err := s.readAt(b, headerBytes); err != nil {
		return nil, err
	}
	if len(b) > 0 && hashDictionary(b) != s.header.dictionary.hash {
		return nil, s.corruption(headerBytes, errors.New("dictionary is not the one its hash names"))
	}
	return b, nil
}

// limit is where the frames end at the latest.
func (s *segmentFile) limit() int64 {
	if s.footer != nil {
		return s.footer.limit()
	}
	return min(s.info.Size, MaxSegmentBytes)
}

// frame reads the frame at offset. Of a block the header and table are read and
// verified into b; it must lie before the limit as a whole. The errors are
// errIncomplete and *CorruptionError where the bytes are to blame.
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
		// A valid one at the end of the file would have been the limit.
		return frameNone, s.missing(offset)
	default:
		return frameNone, s.corruption(offset, fmt.Errorf("frame is of type %d", kind))
	}
}

// readTable reads the rest of the block's table, of which b has the header.
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

// missing is errIncomplete, or corruption where the footer says that all is
// there.
func (s *segmentFile) missing(offset int64) error {
	if s.footer != nil {
		return s.corruption(offset, errors.New("no frame fits between here and the footer"))
	}
	return errIncomplete
}

// markedChain is the chain in the commit mark that frame has read into b.
func (b *block) markedChain() uint32 { return little.Uint32(b.bytes[12:]) }

// readAt fills p from offset. A file that ends before is errIncomplete.
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

// scanBytes is how much of a file is searched at a time.
const scanBytes = 256 << 10

// markBehind returns the offset of the first valid commit mark at offset or
// behind it, looking at every byte; -1 if there is none. It needs no frame in
// between to be whole.
func (s *segmentFile) markBehind(offset int64) (int64, error) {
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

// copyUnderWay tells whether a wrong frame at offset may be one that is still
// being written or copied. The rule: bytes are put into a segment in their
// order, so what stands before a valid commit mark or footer is meant to be as
// it is, and anything wrong there is damage. Where neither stands behind it,
// the right bytes are on their way.
func (s *segmentFile) copyUnderWay(offset int64) bool {
	if s.footer != nil {
		return false
	}
	mark, err := s.markBehind(offset + 1)
	return err == nil && mark < 0
}

// damage decides what it means that the frame at offset could not be read: it
// returns errIncomplete if the right bytes may be on their way, a
// *CorruptionError if not, and other errors as they are.
func (s *segmentFile) damage(offset int64, err error) error {
	var corruption *CorruptionError
	switch {
	case errors.As(err, &corruption):
		if s.copyUnderWay(offset) {
			return errIncomplete
		}
	case errors.Is(err, errIncomplete):
		if !s.copyUnderWay(offset) {
			return s.corruption(offset, errors.New("bytes are missing before a commit mark"))
		}
	}
	return err
}

// checkDocuments reads the documents of the block at offset and returns what is
// wrong with them. With a decoder it also decompresses them.
func (s *segmentFile) checkDocuments(b *block, offset int64, dec decoder) ([]*CorruptionError, error) {
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
			out.bytes, err = dec.decode(out.bytes[:0], documents[e.start:e.end], e.rawBytes())
		}
		if err != nil {
			c := s.corruption(offset+b.dataOffset()+int64(e.start), err)
			c.ID = string(b.id(e))
			bad = append(bad, c)
		}
	}
	return bad, nil
}
