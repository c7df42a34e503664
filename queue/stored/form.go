package stored

import (
	"encoding/binary"
	"errors"
	"fmt"

	"docstore/internal/checksum"
	"docstore/queue/codec"
)

// Errors of forms. Compare with errors.Is.
var (
	// ErrCorrupt: the bytes are damaged, or belong to another id.
	ErrCorrupt = errors.New("queue: corrupt")
	// ErrNewerVersion: the bytes were written by a newer version of this program. They are
	// not damaged.
	ErrNewerVersion = errors.New("queue: format is newer than this program")
	// ErrNoDictionary: the dictionary of a document is not available.
	ErrNoDictionary = errors.New("queue: dictionary is not available")
)

// MaxIDBytes is the maximum size of an id.
const MaxIDBytes = 1 << 10

// A form is
//
//	 0  crc u32              of all that follows and the id, see formCRC
//	 4  raw bytes and flags u32   as in the block's table
//	 8  segment u32          the address
//	12  block u32
//	16  index u16
//	18  codec u8             of the segment; none if it is stored raw
//	19  version u8           0
//	20  dictionary hash [16] zero: none is needed
//	36  the document's stored bytes
const (
	HeaderBytes = 36 // before the stored bytes

	version   = 0
	namedFrom = 18 // the rest of the header is not covered by the document's checksum
)

// MaxBytes is the maximum size of a form.
const MaxBytes = HeaderBytes + codec.MaxDocumentBytes

// Bits of the word with the length of the decoded document, here and in a block's table.
const (
	RawBytesMask = 1<<25 - 1
	FlagRaw      = 1 << 30 // the document is stored uncompressed
)

var little = binary.LittleEndian

// Header is what a form holds besides the stored bytes.
type Header struct {
	DocumentCRC uint32 // of the block's table: it covers address, length, id and stored bytes
	RawAndFlags uint32
	Address     Address
	Codec       codec.ID             // None if the document is stored uncompressed
	Dictionary  codec.DictionaryHash // zero: none is needed
}

// Put writes the header to the first HeaderBytes bytes of b. The stored bytes follow it.
func (h *Header) Put(b []byte) {
	little.PutUint32(b[4:], h.RawAndFlags)
	little.PutUint32(b[8:], uint32(h.Address.Segment))
	little.PutUint32(b[12:], h.Address.Block)
	little.PutUint16(b[16:], h.Address.Index)
	b[18] = byte(h.Codec)
	b[19] = version
	copy(b[20:HeaderBytes], h.Dictionary[:])
	little.PutUint32(b[0:], formCRC(h.DocumentCRC, b))
}

// formCRC is the checksum of a form: the document's checksum in the block's table, which
// covers address, length, id and stored bytes, continued over the rest of the header.
func formCRC(documentCRC uint32, header []byte) uint32 {
	return checksum.Update(documentCRC, header[namedFrom:HeaderBytes])
}

// documentCRC computes the checksum of the document in a form, as in the block's table.
func documentCRC(form, id []byte) uint32 {
	crc := checksum.Update(0, form[8:namedFrom]) // the address
	crc = checksum.Update(crc, form[4:8])        // length and flags
	crc = checksum.Update(crc, id)
	return checksum.Update(crc, form[HeaderBytes:])
}

// Form is a document in its stored form, verified by Parse.
type Form struct {
	Address    Address
	Dictionary codec.DictionaryHash // zero: none is needed
	Bytes      []byte               // the whole form

	codec       codec.ID
	rawAndFlags uint32
	documentCRC uint32
}

// Parse verifies the stored form of the document with the id. The error matches ErrCorrupt,
// or ErrNewerVersion if a newer version of this package made the form. The Form refers to b.
func Parse(b, id []byte) (Form, error) {
	if len(b) < HeaderBytes {
		return Form{}, bad("it has %d bytes, fewer than its header", len(b))
	}
	if len(b) > MaxBytes {
		return Form{}, bad("it has %d bytes, more than %d", len(b), MaxBytes)
	}
	if b[19] != version {
		return Form{}, fmt.Errorf("stored form has version %d, this program reads %d: %w", b[19], version, ErrNewerVersion)
	}
	f := Form{
		Address: Address{
			Segment: SegmentID(little.Uint32(b[8:])),
			Block:   little.Uint32(b[12:]),
			Index:   little.Uint16(b[16:]),
		},
		Dictionary:  codec.DictionaryHash(b[20:]),
		Bytes:       b,
		codec:       codec.ID(b[18]),
		rawAndFlags: little.Uint32(b[4:]),
		documentCRC: documentCRC(b, id),
	}
	want := little.Uint32(b)
	if got := formCRC(f.documentCRC, b); got != want {
		return Form{}, bad("its checksum is %08x, its bytes and the id %.100q have %08x", want, id, got)
	}
	switch {
	case f.rawAndFlags&^(FlagRaw|RawBytesMask) != 0:
		return Form{}, bad("its flags %08x are not those of a document", f.rawAndFlags)
	case f.RawBytes() > codec.MaxDocumentBytes:
		return Form{}, bad("its document has %d bytes", f.RawBytes())
	case f.raw() && f.RawBytes() != len(f.document()):
		return Form{}, bad("its document of %d bytes is stored raw in %d", f.RawBytes(), len(f.document()))
	}
	return f, nil
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: a document's stored form: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// document returns the document as stored in the segment.
func (f *Form) document() []byte { return f.Bytes[HeaderBytes:] }

// raw reports whether the document is stored uncompressed.
func (f *Form) raw() bool { return f.rawAndFlags&FlagRaw != 0 }

// RawBytes returns the size of the decoded document.
func (f *Form) RawBytes() int { return int(f.rawAndFlags & RawBytesMask) }

// Checksum returns the checksum of the form, which covers the id and every byte after
// itself. With the address it identifies a version of a document.
func (f *Form) Checksum() uint32 { return little.Uint32(f.Bytes) }

// DocumentChecksum returns the checksum of the document in the block's table, which covers the
// address, the id and the stored bytes.
func (f *Form) DocumentChecksum() uint32 { return f.documentCRC }

// ZstdFrame returns the document as a zstd frame in two parts, for any zstd decoder, if it
// is stored as one: compressed with zstd without a dictionary. The window of the frame is
// as large as the document.
func (f *Form) ZstdFrame() (magic string, rest []byte, ok bool) {
	if f.raw() || f.codec != codec.Zstd || f.Dictionary != (codec.DictionaryHash{}) {
		return "", nil, false
	}
	return codec.ZstdMagic, f.document(), true
}

// Within reports whether the document can be decoded with these codecs.
func (f *Form) Within(codecs codec.Set) bool { return f.raw() || codecs.Has(f.codec) }
