package segment

import (
	"crypto/sha256"
	"fmt"

	"docstore/internal/checksum"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// SegmentMagic begins every segment file.
const SegmentMagic = "DSTQSEG\x00"

// Digest is the SHA-256 of a footer.
type Digest [sha256.Size]byte

// Half returns the part of a digest that a Proof holds.
func (d Digest) Half() [16]byte { return [16]byte(d[:]) }

// Header is the beginning of a segment; the dictionary follows it.
//
//	 0  magic [8]            "DSTQSEG\0"
//	 8  crc u32              of all that follows, without the dictionary
//	12  version u16          0
//	14  header bytes u16     128
//	16  queue [16]           the queue's id
//	32  segment u32          its number; of a rewrite, the first that it replaces
//	36  codec u8
//	37  flags u8             bit 0: a rewrite that erases
//	38  zero [2]
//	40  created i64          Unix milliseconds
//	48  previous [32]        SHA-256 of the previous segment's footer; zero in segment 1
//	80  rewrites first u32   the run of segments this one replaces; zero: none
//	84  rewrites last u32
//	88  generation u32       the highest one is read
//	92  dictionary bytes u32
//	96  dictionary hash [16] identifies and verifies the dictionary
//	112 sampled first u32    the segments that the dictionary was trained from, as they
//	116 sampled last u32     were in rewrites of at most the generation; zero: unknown
//	120 generation u32
//	124 zero [4]
type Header struct {
	CRC        uint32
	Queue      [16]byte
	Segment    ID
	Codec      codec.ID
	Created    int64
	Previous   Digest
	Rewrites   Run // zero: the segment is an original
	Dictionary struct {
		Bytes uint32
		Hash  codec.DictionaryHash
	}
	Sampled Run
	// Erases: entries that the rewrite has left out must not remain anywhere, also not in
	// a dictionary.
	Erases bool
}

// HeaderErases is the flag of a rewrite that erases.
const HeaderErases = 1 << 0

// FirstFrame is the offset of the segment's first frame.
func (h *Header) FirstFrame() int64 {
	return HeaderBytes + int64(h.Dictionary.Bytes)
}

// SetDictionary sets the dictionary that follows the header, but not the segments it was
// trained from.
func (h *Header) SetDictionary(content []byte) {
	h.Dictionary.Bytes, h.Dictionary.Hash = uint32(len(content)), codec.DictionaryHash{}
	if len(content) > 0 {
		h.Dictionary.Hash = codec.HashDictionary(content)
	}
}

// Encode returns the header's bytes and sets its checksum.
func (h *Header) Encode() []byte {
	var b [HeaderBytes]byte
	copy(b[:], SegmentMagic)
	Little.PutUint16(b[12:], formatVersion)
	Little.PutUint16(b[14:], HeaderBytes)
	copy(b[16:], h.Queue[:])
	Little.PutUint32(b[32:], uint32(h.Segment))
	b[36] = byte(h.Codec)
	if h.Erases {
		b[37] = HeaderErases
	}
	Little.PutUint64(b[40:], uint64(h.Created))
	copy(b[48:], h.Previous[:])
	Little.PutUint32(b[80:], uint32(h.Rewrites.First))
	Little.PutUint32(b[84:], uint32(h.Rewrites.Last))
	Little.PutUint32(b[88:], h.Rewrites.Generation)
	Little.PutUint32(b[92:], h.Dictionary.Bytes)
	copy(b[96:], h.Dictionary.Hash[:])
	Little.PutUint32(b[112:], uint32(h.Sampled.First))
	Little.PutUint32(b[116:], uint32(h.Sampled.Last))
	Little.PutUint32(b[120:], h.Sampled.Generation)
	h.CRC = checksum.Update(0, b[12:])
	Little.PutUint32(b[8:], h.CRC)
	return b[:]
}

// ParseHeader parses the header in b, which has HeaderBytes bytes. A newer version is
// stored.ErrNewerVersion; other errors are plain.
//
// Magic, checksum, version and header bytes have the same place, and the checksum the
// same meaning, in every version, so that a newer version is never mistaken for damage.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	if string(b[:8]) != SegmentMagic {
		return h, fmt.Errorf("magic is %q, want %q", b[:8], SegmentMagic)
	}
	h.CRC = Little.Uint32(b[8:])
	version, size := Little.Uint16(b[12:]), Little.Uint16(b[14:])
	if version == formatVersion && size != HeaderBytes {
		return h, fmt.Errorf("header says it has %d bytes, want %d", size, HeaderBytes)
	}
	if size == HeaderBytes {
		if got := checksum.Update(0, b[12:]); got != h.CRC {
			return h, fmt.Errorf("header's checksum is %08x, its bytes have %08x", h.CRC, got)
		}
	}
	if version != formatVersion {
		return h, fmt.Errorf("segment has version %d, this program reads %d: %w", version, formatVersion, stored.ErrNewerVersion)
	}
	h.Queue = [16]byte(b[16:])
	h.Segment = ID(Little.Uint32(b[32:]))
	h.Codec, h.Erases = codec.ID(b[36]), b[37] == HeaderErases
	h.Created = int64(Little.Uint64(b[40:]))
	h.Previous = Digest(b[48:])
	h.Dictionary.Bytes = Little.Uint32(b[92:])
	h.Dictionary.Hash = codec.DictionaryHash(b[96:])
	h.Rewrites.First = ID(Little.Uint32(b[80:]))
	h.Rewrites.Last = ID(Little.Uint32(b[84:]))
	h.Rewrites.Generation = Little.Uint32(b[88:])
	h.Sampled = Run{First: ID(Little.Uint32(b[112:])), Last: ID(Little.Uint32(b[116:])), Generation: Little.Uint32(b[120:])}
	switch {
	case b[37]&^HeaderErases != 0 || !allZero(b[38:40]) || !allZero(b[124:]):
		return h, fmt.Errorf("reserved bytes are not zero")
	case h.Rewrites != Run{} && (h.Rewrites.First != h.Segment || !h.Rewrites.valid()):
		return h, fmt.Errorf("segment %d states an invalid rewrite of %d to %d, generation %d",
			h.Segment, h.Rewrites.First, h.Rewrites.Last, h.Rewrites.Generation)
	case h.Segment == 0:
		return h, fmt.Errorf("segment number is 0")
	case h.Dictionary.Bytes > codec.MaxDictionaryBytes:
		return h, fmt.Errorf("dictionary has %d bytes, more than %d", h.Dictionary.Bytes, codec.MaxDictionaryBytes)
	}
	return h, nil
}

// storedHeaderBytes is the size of the header of a stored form.
const storedHeaderBytes = stored.HeaderBytes

// putStored writes the header of the stored form of an entry's document, which follows it in
// b.
func (h *Header) putStored(b []byte, at Address, e *Entry) {
	header := stored.Header{DocumentCRC: e.CRC, RawAndFlags: e.RawAndFlags, Address: at}
	if !e.StoredRaw() {
		header.Codec = h.Codec
		if h.Dictionary.Bytes > 0 {
			header.Dictionary = h.Dictionary.Hash
		}
	}
	header.Put(b)
}
