package segment

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

// File is a file of a segment or rewrite, open for reading. Its fields are
// constant except during refresh and mapSealed.
type File struct {
	Path   string
	Number ID // of the file name
	Handle vfs.File
	// Mapping is set for a sealed file that was opened to fetch documents; nil: reads are
	// system calls.
	Mapping vfs.Mapping
	Info    vfs.Info // when it was opened or refreshed
	Header  Header
	// Footer is nil until the file ends in a valid footer.
	Footer *Footer
	// Relocations maps the original addresses of a rewrite's blocks; nil in an original.
	Relocations *Relocations
}

// Open opens a file and reads its header. The error is ErrPartial if the
// file is too short for a header.
func Open(fsys vfs.FS, path string, number ID) (*File, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	s := &File{Path: path, Number: number, Handle: file}
	if err := s.load(); err != nil {
		file.Close()
		return nil, err
	}
	return s, nil
}

// load reads the footer, the header and the relocations.
func (s *File) load() error {
	if err := s.Refresh(); err != nil {
		return err
	}
	b := make([]byte, HeaderBytes)
	if err := s.ReadAt(b, 0); err != nil {
		return err
	}
	header, err := ParseHeader(b)
	switch {
	case errors.Is(err, stored.ErrNewerVersion) && s.headerIntact(b):
		return fmt.Errorf("queue: %s: %w", s.Path, err)
	case err == nil && !header.Holds(s.Number):
		err = fmt.Errorf("header names segment %d", header.Segment)
	}
	if err != nil {
		if s.Footer == nil && s.copyInProgress(0) {
			return ErrPartial
		}
		return s.Corruption(0, err)
	}
	s.Header = header
	if s.Footer != nil && (s.Footer.Queue != header.Queue || s.Footer.Segment != header.Segment) {
		return s.Corruption(int64(s.Footer.Offset), errors.New("footer names another segment"))
	}
	return s.LoadRelocations()
}

// headerIntact verifies the checksum of a header of any version.
func (s *File) headerIntact(b []byte) bool {
	whole := make([]byte, max(16, int(Little.Uint16(b[14:]))))
	return s.ReadAt(whole, 0) == nil && checksum.Update(0, whole[12:]) == Little.Uint32(b[8:])
}

// Refresh reads the file's size again, and the footer if it has arrived.
func (s *File) Refresh() error {
	info, err := s.Handle.Stat()
	if err != nil {
		return err
	}
	s.Info, s.Footer = info, nil
	offset := info.Size - FooterBytes
	if offset < HeaderBytes || offset >= MaxSegmentBytes {
		return nil
	}
	b := make([]byte, FooterBytes)
	if err := s.ReadAt(b, offset); err != nil {
		return err
	}
	if footer, err := ParseFooter(b, offset); err == nil {
		s.Footer = &footer
	}
	return nil
}

// Dictionary reads the segment's dictionary and verifies its hash.
func (s *File) Dictionary() ([]byte, error) {
	b := make([]byte, s.Header.Dictionary.Bytes)
	if err := s.ReadAt(b, HeaderBytes); err != nil {
		return nil, err
	}
	if len(b) > 0 && codec.HashDictionary(b) != s.Header.Dictionary.Hash {
		return nil, s.Corruption(HeaderBytes, errors.New("dictionary does not match its hash"))
	}
	return b, nil
}

// Limit is the upper bound of the frames' end.
func (s *File) Limit() int64 {
	if s.Footer != nil {
		return s.Footer.Limit()
	}
	return min(s.Info.Size, MaxSegmentBytes)
}

// Frame reads the frame at offset. It reads and verifies the header and table of a block
// into b; the whole block must end before the limit. Errors about content are
// ErrPartial and *CorruptionError.
func (s *File) Frame(b *Block, offset int64) (FrameType, error) {
	room := s.Limit() - offset
	if room < MarkBytes {
		return frameNone, s.missing(offset)
	}
	b.Bytes = slices.Grow(b.Bytes[:0], frameHeadBytes)[:min(frameHeadBytes, room)]
	if err := s.ReadAt(b.Bytes, offset); err != nil {
		return frameNone, err
	}
	switch kind := FrameType(b.Bytes[4]); kind {
	case frameNone:
		if allZero(b.Bytes) {
			return frameNone, s.missing(offset)
		}
		return frameNone, s.Corruption(offset, errors.New("frame has no type"))
	case FrameMark:
		if err := CheckMark(b.Bytes[:MarkBytes], offset); err != nil {
			return frameNone, s.Corruption(offset, err)
		}
		return FrameMark, nil
	case FrameBlock:
		return FrameBlock, s.readTable(b, offset, room)
	case FrameFooter:
		// A valid footer at the end of the file would have set the limit.
		return frameNone, s.missing(offset)
	default:
		return frameNone, s.Corruption(offset, fmt.Errorf("frame is of type %d", kind))
	}
}

// readTable reads the rest of the table of a block whose header is in b.
func (s *File) readTable(b *Block, offset, room int64) error {
	if len(b.Bytes) < BlockHeaderBytes {
		return s.missing(offset)
	}
	h, err := ParseBlockHeader(b.Bytes)
	if err != nil {
		return s.Corruption(offset, err)
	}
	if h.Size() > room {
		return s.missing(offset)
	}
	b.Bytes = slices.Grow(b.Bytes, int(h.tableBytes))[:h.DataOffset()]
	if err := s.ReadAt(b.Bytes[BlockHeaderBytes:], offset+BlockHeaderBytes); err != nil {
		return err
	}
	if err := b.Parse(); err != nil {
		return s.Corruption(offset, err)
	}
	if b.RelocatedBlock != (s.Relocations != nil) {
		return s.Corruption(offset, errBlockKind)
	}
	return nil
}

// missing is ErrPartial, or corruption if the file has a footer and is therefore
// complete.
func (s *File) missing(offset int64) error {
	if s.Footer != nil {
		return s.Corruption(offset, errors.New("no frame fits between here and the footer"))
	}
	return ErrPartial
}

// MarkedChain is the chain of the commit mark that frame has read into b.
func (b *Block) MarkedChain() uint32 { return Little.Uint32(b.Bytes[12:]) }

// ReadAt fills p from offset. The error is ErrPartial if the file ends before.
func (s *File) ReadAt(p []byte, offset int64) error {
	if s.Mapping != nil {
		return s.copyMapped(p, offset)
	}
	n, err := s.Handle.ReadAt(p, offset)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF):
		return ErrPartial
	}
	return s.readError(err)
}

func (s *File) readError(err error) error {
	return fmt.Errorf("queue: reading segment %d: %w", s.Number, err)
}

// Corruption is the error for wrong bytes at an offset.
func (s *File) Corruption(offset int64, reason error) *CorruptionError {
	return &CorruptionError{Path: s.Path, Segment: s.Number, Offset: offset, Reason: reason.Error()}
}

// ScanBytes is the size of the buffer of a search.
const ScanBytes = 256 << 10

// markAfter returns the offset of the first valid commit mark at offset or after it, or
// -1. It looks at every byte, so frames in between may be damaged.
func (s *File) markAfter(offset int64) (int64, error) {
	buffer := make([]byte, max(0, min(ScanBytes, s.Limit()-offset)))
	for ; offset+MarkBytes <= s.Limit(); offset += ScanBytes - MarkBytes + 1 {
		window := buffer[:min(ScanBytes, s.Limit()-offset)]
		if err := s.ReadAt(window, offset); err != nil {
			return -1, err
		}
		for i := 0; i+MarkBytes <= len(window); i++ {
			if FrameType(window[i+4]) != FrameMark || int64(Little.Uint32(window[i+8:])) != offset+int64(i) {
				continue
			}
			if CheckMark(window[i:i+MarkBytes], offset+int64(i)) == nil {
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
func (s *File) copyInProgress(offset int64) bool {
	if s.Footer != nil {
		return false
	}
	mark, err := s.markAfter(offset + 1)
	return err == nil && mark < 0
}

// Damage interprets an error of the frame at offset: it returns ErrPartial if the
// right bytes may still arrive, a *CorruptionError if not, and other errors unchanged.
func (s *File) Damage(offset int64, err error) error {
	var corruption *CorruptionError
	switch {
	case errors.As(err, &corruption):
		if s.copyInProgress(offset) {
			return ErrPartial
		}
	case errors.Is(err, ErrPartial):
		if !s.copyInProgress(offset) {
			return s.Corruption(offset, errors.New("bytes are missing before a commit mark"))
		}
	}
	return err
}

// decoder returns the decoder for the documents of the file.
func (s *File) decoder(cache *stored.DecoderCache) (codec.Decoder, error) {
	key := stored.Key{Codec: s.Header.Codec, Dictionary: s.Header.Dictionary.Hash}
	if d := cache.Get(key); d != nil {
		return d, nil
	}
	if _, err := codec.ByID(key.Codec); err != nil {
		return nil, err
	}
	content, err := s.Dictionary()
	if err != nil {
		return nil, err
	}
	d, err := cache.Keep(key, content)
	if err != nil {
		return nil, s.Corruption(HeaderBytes, err)
	}
	return d, nil
}

// CheckDocuments verifies the documents of the block at offset and returns the damage.
// With a decoder it also decompresses them.
func (s *File) CheckDocuments(b *Block, offset int64, dec codec.Decoder) ([]*CorruptionError, error) {
	data, out := GetScratch(), GetScratch()
	defer data.Release()
	defer out.Release()
	documents := data.Sized(int(b.DataBytes))
	if err := s.ReadAt(documents, offset+b.DataOffset()); err != nil {
		return nil, err
	}
	var bad []*CorruptionError
	at, _ := b.Origin(Address{Segment: s.Number, Block: uint32(offset)})
	for i := range b.Count {
		e := b.Entry(i)
		at.Index = b.Index(i)
		err := VerifyDocument(at, &e, b.ID(e), documents[e.Start:e.End])
		if err == nil && dec != nil && e.HasCoded() {
			out.Bytes, err = dec.Decode(out.Bytes[:0], documents[e.Start:e.End], e.RawBytes())
		}
		if err != nil {
			bad = append(bad, s.damagedDocument(offset+b.DataOffset()+int64(e.Start), b.ID(e), err))
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
func (s *File) mapSealed() {
	if s.Footer == nil {
		return
	}
	mapping, err := s.Handle.Map(s.Info.Size)
	if err != nil {
		return
	}
	// Lookups are scattered. With random access a page fault reads 12 KiB and takes 0.15
	// ms; with readahead it reads 500 KiB and takes twice as long.
	_ = mapping.Advise(vfs.AdviseRandom)
	s.Mapping = mapping
	_ = s.Handle.Close() // a mapping needs no descriptor
	s.Handle = nil
	if s.Relocations != nil {
		s.Relocations = s.Relocations.mapped(s.Mapping.Bytes()[s.Footer.Limit():])
	}
}

// Close closes the file, which was only read. There must be no concurrent reads.
func (s *File) Close() {
	if s.Mapping != nil {
		_ = s.Mapping.Close()
		return
	}
	_ = s.Handle.Close()
}

// copyMapped is ReadAt for a mapped file.
func (s *File) copyMapped(p []byte, offset int64) error {
	mapped := s.Mapping.Bytes()
	if offset < 0 || offset > int64(len(mapped)) || int64(len(p)) > int64(len(mapped))-offset {
		return ErrPartial
	}
	if err := vfs.Guard(func() { copy(p, mapped[offset:]) }); err != nil {
		return s.readError(err)
	}
	return nil
}

// DamagedEntry is the error for a damaged document of the block at offset.
func (s *File) DamagedEntry(b *Block, e *Entry, offset int64, id []byte, reason error) error {
	return s.damagedDocument(offset+b.DataOffset()+int64(e.Start), id, reason)
}

// guard runs fn, and makes an error of a fault in the mapped file.
func (s *File) guard(fn func() error) (err error) {
	if s.Mapping == nil {
		return fn()
	}
	if fault := vfs.Guard(func() { err = fn() }); fault != nil {
		return s.readError(fault)
	}
	return err
}

// damagedDocument is the error for a document whose stored bytes are at offset.
func (s *File) damagedDocument(offset int64, id []byte, reason error) *CorruptionError {
	c := s.Corruption(offset, reason)
	c.ID = string(id)
	return c
}

// VerifyDocument compares the stored bytes of a document with the checksum in its entry.
func VerifyDocument(at Address, e *Entry, id, stored []byte) error {
	if got := DocumentCRC(at, e.RawAndFlags, id, stored); got != e.CRC {
		return wrongChecksum(e.CRC, got)
	}
	return nil
}

func wrongChecksum(want, got uint32) error {
	return fmt.Errorf("document's checksum is %08x, its bytes have %08x", want, got)
}

// SameFile reports whether a file is the same and unchanged.
func SameFile(a, b vfs.Info) bool {
	return a.ID == b.ID && a.Size == b.Size && a.ModTime.Equal(b.ModTime)
}

// Forked is the error for a file of a queue other than the one that is read.
func (s *File) Forked(want [16]byte) error {
	return fmt.Errorf("%w: %s is of queue %x, not of %x", ErrForked, s.Path, s.Header.Queue, want)
}

// PrefetchEntry prefetches what locate reads of an original block of a mapped file.
func (s *File) PrefetchEntry(block int64, index uint16) {
	s.Prefetch(block, BlockHeaderBytes)
	s.Prefetch(block+BlockHeaderBytes+EntryBytes*int64(max(index, 1)-1), 2*EntryBytes)
}

// Prefetch prefetches bytes of a mapped file, as far as it has them.
func (s *File) Prefetch(offset, n int64) {
	mapped := s.Mapping.Bytes()
	if offset < int64(len(mapped)) {
		prefetch.Bytes(mapped[offset:min(offset+n, int64(len(mapped)))])
	}
}

// TableBytes is the mean length of the header and table of the blocks of a sealed file, and at
// least that up to the entry with the index.
func (s *File) TableBytes(index uint16) int64 {
	t := &s.Footer.Totals
	mean := (s.Footer.Limit() - s.Header.FirstFrame() - int64(t.Stored)) / max(1, int64(t.Blocks))
	return max(BlockHeaderBytes+EntryBytes*(int64(index)+1), mean)
}
