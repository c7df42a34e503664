package queue

import (
	"crypto/sha256"
	"fmt"

	"docstore/internal/checksum"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// segmentMagic begins every segment file.
const segmentMagic = "DSTQSEG\x00"

// digest is the SHA-256 of a footer.
type digest [sha256.Size]byte

// half returns the part of a digest that a Proof holds.
func (d digest) half() [16]byte { return [16]byte(d[:]) }

// segmentHeader is the beginning of a segment; the dictionary follows it.
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
type segmentHeader struct {
	crc        uint32
	queue      [16]byte
	segment    SegmentID
	codec      codec.ID
	created    int64
	previous   digest
	rewrites   rewriteRun // zero: the segment is an original
	dictionary struct {
		bytes uint32
		hash  codec.DictionaryHash
	}
	sampled rewriteRun
	// erases: entries that the rewrite has left out must not remain anywhere, also not in
	// a dictionary.
	erases bool
}

const headerErases = 1 << 0

// firstFrame is the offset of the segment's first frame.
func (h *segmentHeader) firstFrame() int64 {
	return headerBytes + int64(h.dictionary.bytes)
}

// setDictionary sets the dictionary that follows the header, but not the segments it was
// trained from.
func (h *segmentHeader) setDictionary(content []byte) {
	h.dictionary.bytes, h.dictionary.hash = uint32(len(content)), codec.DictionaryHash{}
	if len(content) > 0 {
		h.dictionary.hash = codec.HashDictionary(content)
	}
}

// encode returns the header's bytes and sets its checksum.
func (h *segmentHeader) encode() []byte {
	var b [headerBytes]byte
	copy(b[:], segmentMagic)
	little.PutUint16(b[12:], formatVersion)
	little.PutUint16(b[14:], headerBytes)
	copy(b[16:], h.queue[:])
	little.PutUint32(b[32:], uint32(h.segment))
	b[36] = byte(h.codec)
	if h.erases {
		b[37] = headerErases
	}
	little.PutUint64(b[40:], uint64(h.created))
	copy(b[48:], h.previous[:])
	little.PutUint32(b[80:], uint32(h.rewrites.first))
	little.PutUint32(b[84:], uint32(h.rewrites.last))
	little.PutUint32(b[88:], h.rewrites.generation)
	little.PutUint32(b[92:], h.dictionary.bytes)
	copy(b[96:], h.dictionary.hash[:])
	little.PutUint32(b[112:], uint32(h.sampled.first))
	little.PutUint32(b[116:], uint32(h.sampled.last))
	little.PutUint32(b[120:], h.sampled.generation)
	h.crc = checksum.Update(0, b[12:])
	little.PutUint32(b[8:], h.crc)
	return b[:]
}

// parseHeader parses the header in b, which has headerBytes bytes. A newer version is
// ErrNewerVersion; other errors are plain.
//
// Magic, checksum, version and header bytes have the same place, and the checksum the
// same meaning, in every version, so that a newer version is never mistaken for damage.
func parseHeader(b []byte) (segmentHeader, error) {
	var h segmentHeader
	if string(b[:8]) != segmentMagic {
		return h, fmt.Errorf("magic is %q, want %q", b[:8], segmentMagic)
	}
	h.crc = little.Uint32(b[8:])
	version, size := little.Uint16(b[12:]), little.Uint16(b[14:])
	if version == formatVersion && size != headerBytes {
		return h, fmt.Errorf("header says it has %d bytes, want %d", size, headerBytes)
	}
	if size == headerBytes {
		if got := checksum.Update(0, b[12:]); got != h.crc {
			return h, fmt.Errorf("header's checksum is %08x, its bytes have %08x", h.crc, got)
		}
	}
	if version != formatVersion {
		return h, fmt.Errorf("segment has version %d, this program reads %d: %w", version, formatVersion, ErrNewerVersion)
	}
	h.queue = [16]byte(b[16:])
	h.segment = SegmentID(little.Uint32(b[32:]))
	h.codec, h.erases = codec.ID(b[36]), b[37] == headerErases
	h.created = int64(little.Uint64(b[40:]))
	h.previous = digest(b[48:])
	h.dictionary.bytes = little.Uint32(b[92:])
	h.dictionary.hash = codec.DictionaryHash(b[96:])
	h.rewrites.first = SegmentID(little.Uint32(b[80:]))
	h.rewrites.last = SegmentID(little.Uint32(b[84:]))
	h.rewrites.generation = little.Uint32(b[88:])
	h.sampled = rewriteRun{first: SegmentID(little.Uint32(b[112:])), last: SegmentID(little.Uint32(b[116:])), generation: little.Uint32(b[120:])}
	switch {
	case b[37]&^headerErases != 0 || !allZero(b[38:40]) || !allZero(b[124:]):
		return h, fmt.Errorf("reserved bytes are not zero")
	case h.rewrites != rewriteRun{} && (h.rewrites.first != h.segment || !h.rewrites.valid()):
		return h, fmt.Errorf("segment %d states an invalid rewrite of %d to %d, generation %d",
			h.segment, h.rewrites.first, h.rewrites.last, h.rewrites.generation)
	case h.segment == 0:
		return h, fmt.Errorf("segment number is 0")
	case h.dictionary.bytes > codec.MaxDictionaryBytes:
		return h, fmt.Errorf("dictionary has %d bytes, more than %d", h.dictionary.bytes, codec.MaxDictionaryBytes)
	}
	return h, nil
}

// storedHeaderBytes is the size of the header of a stored form.
const storedHeaderBytes = stored.HeaderBytes

// putStored writes the header of the stored form of an entry's document, which follows it in
// b.
func (h *segmentHeader) putStored(b []byte, at Address, e *entry) {
	header := stored.Header{DocumentCRC: e.crc, RawAndFlags: e.rawAndFlags, Address: at}
	if !e.storedRaw() {
		header.Codec = h.codec
		if h.dictionary.bytes > 0 {
			header.Dictionary = h.dictionary.hash
		}
	}
	header.Put(b)
}
