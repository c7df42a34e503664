package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"docstore/internal/checksum"
)

// The stored form of a document is its bytes in the segment with everything needed to
// verify and decode them elsewhere: between server and client, and in a cache.
// docs/format/stored.md has an example.
//
//	 0  crc u32              of all that follows and the id, see storedCRC
//	 4  raw bytes and flags u32   as in the block's table
//	 8  segment u32          the address
//	12  block u32
//	16  index u16
//	18  codec u8             of the segment; none if it is stored raw
//	19  version u8           0
//	20  dictionary hash [16] zero: none is needed
//	36  the document's stored bytes
const (
	storedHeaderBytes = 36
	storedVersion     = 0
	storedNamedFrom   = 18 // the rest of the header is not covered by the document's checksum
)

// MaxStoredBytes is the maximum size of a stored form.
const MaxStoredBytes = storedHeaderBytes + MaxDocumentBytes

// Stored is a document in its stored form, verified by ParseStored.
type Stored struct {
	Address    Address
	Dictionary DictionaryHash // zero: none is needed
	Bytes      []byte         // the whole form

	codec       codecID
	rawAndFlags uint32
}

// putStored writes the header of a stored form, whose document follows it in b.
func (h *segmentHeader) putStored(b []byte, at Address, e *entry) {
	clear(b[:storedHeaderBytes])
	little.PutUint32(b[4:], e.rawAndFlags)
	little.PutUint32(b[8:], uint32(at.Segment))
	little.PutUint32(b[12:], at.Block)
	little.PutUint16(b[16:], at.Index)
	b[19] = storedVersion
	if !e.storedRaw() {
		b[18] = byte(h.codec)
		if h.dictionary.bytes > 0 {
			copy(b[20:], h.dictionary.hash[:])
		}
	}
	little.PutUint32(b[0:], storedCRC(e.crc, b))
}

// storedCRC is the checksum of a stored form: the document's checksum in the block's
// table, which covers address, length, id and stored bytes, continued over the rest of
// the header.
func storedCRC(documentCRC uint32, header []byte) uint32 {
	return checksum.Update(documentCRC, header[storedNamedFrom:storedHeaderBytes])
}

// documentCRCIn computes the checksum of the document in a stored form, as in the block's
// table.
func documentCRCIn(form, id []byte) uint32 {
	crc := checksum.Update(0, form[8:storedNamedFrom]) // the address
	crc = checksum.Update(crc, form[4:8])              // length and flags
	crc = checksum.Update(crc, id)
	return checksum.Update(crc, form[storedHeaderBytes:])
}

// ParseStored verifies the stored form of the document with the id. The error matches
// ErrCorrupt, or ErrNewerVersion if a newer version of this package made the form. Stored
// refers to b.
func ParseStored(b, id []byte) (Stored, error) {
	if len(b) < storedHeaderBytes {
		return Stored{}, badStored("it has %d bytes, fewer than its header", len(b))
	}
	if len(b) > MaxStoredBytes {
		return Stored{}, badStored("it has %d bytes, more than %d", len(b), MaxStoredBytes)
	}
	if b[19] != storedVersion {
		return Stored{}, fmt.Errorf("stored form has version %d, this program reads %d: %w", b[19], storedVersion, ErrNewerVersion)
	}
	s := Stored{
		Address: Address{
			Segment: SegmentID(little.Uint32(b[8:])),
			Block:   little.Uint32(b[12:]),
			Index:   little.Uint16(b[16:]),
		},
		Dictionary:  DictionaryHash(b[20:]),
		Bytes:       b,
		codec:       codecID(b[18]),
		rawAndFlags: little.Uint32(b[4:]),
	}
	want := little.Uint32(b)
	if got := storedCRC(documentCRCIn(b, id), b); got != want {
		return Stored{}, badStored("its checksum is %08x, its bytes and the id %.100q have %08x", want, id, got)
	}
	e := entry{rawAndFlags: s.rawAndFlags}
	switch {
	case s.rawAndFlags&^(flagStoredRaw|rawBytesMask) != 0:
		return Stored{}, badStored("its flags %08x are not those of a document", s.rawAndFlags)
	case e.rawBytes() > MaxDocumentBytes:
		return Stored{}, badStored("its document has %d bytes", e.rawBytes())
	case e.storedRaw() && e.rawBytes() != len(s.document()):
		return Stored{}, badStored("its document of %d bytes is stored raw in %d", e.rawBytes(), len(s.document()))
	}
	return s, nil
}

func badStored(format string, args ...any) error {
	return &markedError{mark: ErrCorrupt, detail: "a document's stored form: " + fmt.Sprintf(format, args...)}
}

// document returns the document as stored in the segment.
func (s *Stored) document() []byte { return s.Bytes[storedHeaderBytes:] }

// raw reports whether the document is stored uncompressed.
func (s *Stored) raw() bool { return s.rawAndFlags&flagStoredRaw != 0 }

// RawBytes returns the size of the decoded document.
func (s *Stored) RawBytes() int {
	e := entry{rawAndFlags: s.rawAndFlags}
	return e.rawBytes()
}

// Checksum returns the checksum of the form, which covers the id and every byte after
// itself. With the address it identifies a version of a document.
func (s *Stored) Checksum() uint32 { return little.Uint32(s.Bytes) }

// ZstdFrame returns the document as a zstd frame in two parts, for any zstd decoder, if it
// is stored as one: compressed with zstd without a dictionary. The window of the frame is
// as large as the document.
func (s *Stored) ZstdFrame() (magic string, rest []byte, ok bool) {
	if s.raw() || s.codec != codecZstd || s.Dictionary != (DictionaryHash{}) {
		return "", nil, false
	}
	return zstdMagic, s.document(), true
}

// Within reports whether the document can be decoded with these codecs.
func (s *Stored) Within(codecs CodecSet) bool { return s.raw() || codecs.has(s.codec) }

// CodecSet is a set of codecs: bit n is the codec with the number n in segment headers.
// Sets of other builds may have bits that this build does not know.
type CodecSet uint32

func (c CodecSet) has(id codecID) bool { return id < 32 && c&(1<<id) != 0 }

// BuiltCodecs returns the codecs of this build.
func BuiltCodecs() CodecSet {
	var set CodecSet
	for _, c := range codecs {
		set |= 1 << c.id
	}
	return set
}

// StoredFor is DocumentFor for a caller that can decode the codecs in take: a document
// that needs no other codec is appended in its stored form, for ParseStored, and asStored
// is true. Any other document is appended decoded. With a Place that is right it reads no
// table.
func (r *Reader) StoredFor(dst []byte, wanted Wanted, take CodecSet) (_ []byte, asStored bool, _ error) {
	if len(wanted.ID) == 0 {
		return dst, false, ErrIDEmpty
	}
	q := request{r: r, id: wanted.ID, at: wanted.Address, place: wanted.Place, take: take, dst: dst}
	err := q.document()
	return q.dst, q.asStored, err
}

// DecodedBytes returns the length of a decoded document without reading it. The length is
// not verified, but at most MaxDocumentBytes.
func (r *Reader) DecodedBytes(a Address) (int, error) {
	q := request{r: r, at: a, lengthOnly: true}
	err := q.document()
	return q.length, err
}

// Dictionary appends the verified dictionary with the hash to dst. The error is
// ErrNoDictionary if no segment in the directory has it.
func (r *Reader) Dictionary(dst []byte, hash DictionaryHash) ([]byte, error) {
	if f := r.files.withDictionary(hash); f != nil {
		content, err := f.dictionary()
		r.files.put(f)
		if err == nil {
			return append(dst, content...), nil
		}
	}
	l, err := r.list()
	if err != nil {
		return dst, err
	}
	var paths []string
	for _, n := range l.numbers {
		for _, suffix := range suffixes {
			paths = append(paths, segmentPath(r.dir, n, suffix))
		}
	}
	for _, run := range l.rewrites {
		paths = append(paths, run.path(r.dir))
	}
	var reason error
	for _, path := range slices.Backward(paths) {
		content, err := r.dictionaryIn(path, hash)
		if content != nil {
			return append(dst, content...), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			reason = err
		}
	}
	return dst, &markedError{mark: ErrNoDictionary, detail: hash.String() + ": not in any segment of this directory", reason: reason}
}

// dictionaryIn returns the dictionary of a file if it has the hash, otherwise nil.
func (r *Reader) dictionaryIn(path string, hash DictionaryHash) ([]byte, error) {
	name, _ := ParseFileName(filepath.Base(path))
	s, err := openSegmentFile(r.options.FS, path, name.First)
	if err != nil {
		return nil, err
	}
	defer s.file.Close()
	if s.header.dictionary.bytes == 0 || s.header.dictionary.hash != hash {
		return nil, nil
	}
	return s.dictionary()
}
