package bloom

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
)

// The trailer, the last bytes of a filter. Its size and the offsets of crc, version and
// magic are the same in every version, so a newer filter can be distinguished from a
// damaged one.
const (
	magic    = "DOCBLOOM"
	version  = 0
	kindPage = 1 // each page is one filter of bloom/v3

	trailerBytes = 64

	trailerCRCAt        = 0
	trailerIndexCRCAt   = 4
	trailerIndexBytesAt = 8
	trailerKeysAt       = 16
	trailerPagesAt      = 24
	trailerPageBytesAt  = 28
	trailerHashesAt     = 32
	trailerKindAt       = 34
	trailerReservedAt   = 36
	trailerVersionAt    = 54
	trailerMagicAt      = 56
)

// An entry of the index.
const (
	entryHeaderBytes = 24

	entryOffsetAt          = 0
	entryBytesAt           = 8
	entryKeysAt            = 12
	entryCRCAt             = 16
	entrySeparatorLengthAt = 20
)

// wordBytes is the size of the smallest page: a word of bloom/v3.
const wordBytes = 8

// maxHashes is the largest number of hash functions: two more than MinFalsePositiveRate
// needs.
const maxHashes = 16

var order = binary.LittleEndian

// trailer is the decoded trailer of a filter.
type trailer struct {
	indexCRC   uint32
	indexBytes uint64
	keys       uint64
	pages      uint32
	pageBytes  uint32
	hashes     uint16
}

func (t trailer) append(dst []byte) []byte {
	b := make([]byte, trailerBytes)
	order.PutUint32(b[trailerIndexCRCAt:], t.indexCRC)
	order.PutUint64(b[trailerIndexBytesAt:], t.indexBytes)
	order.PutUint64(b[trailerKeysAt:], t.keys)
	order.PutUint32(b[trailerPagesAt:], t.pages)
	order.PutUint32(b[trailerPageBytesAt:], t.pageBytes)
	order.PutUint16(b[trailerHashesAt:], t.hashes)
	order.PutUint16(b[trailerKindAt:], kindPage)
	order.PutUint16(b[trailerVersionAt:], version)
	copy(b[trailerMagicAt:], magic)
	order.PutUint32(b[trailerCRCAt:], checksum.Of(b[trailerIndexCRCAt:]))
	return append(dst, b...)
}

// decodeTrailer decodes b, which has trailerBytes. The error is ErrNewerVersion or
// describes the damage.
func decodeTrailer(b []byte) (trailer, error) {
	if got := b[trailerMagicAt:]; string(got) != magic {
		return trailer{}, fmt.Errorf("not a filter: magic %q, want %q", got, magic)
	}
	if got, want := checksum.Of(b[trailerIndexCRCAt:]), order.Uint32(b[trailerCRCAt:]); got != want {
		return trailer{}, fmt.Errorf("trailer checksum %08x, want %08x", got, want)
	}
	if v := order.Uint16(b[trailerVersionAt:]); v > version {
		return trailer{}, errors.Wrapf(ErrNewerVersion, "version %d, want at most %d", v, version)
	}
	if kind := order.Uint16(b[trailerKindAt:]); kind != kindPage {
		return trailer{}, fmt.Errorf("kind %d, want %d", kind, kindPage)
	}
	reserved := b[trailerReservedAt:trailerVersionAt]
	if bytes.Count(reserved, []byte{0}) != len(reserved) {
		return trailer{}, errors.New("reserved bytes of the trailer are not zero")
	}
	t := trailer{
		indexCRC:   order.Uint32(b[trailerIndexCRCAt:]),
		indexBytes: order.Uint64(b[trailerIndexBytesAt:]),
		keys:       order.Uint64(b[trailerKeysAt:]),
		pages:      order.Uint32(b[trailerPagesAt:]),
		pageBytes:  order.Uint32(b[trailerPageBytesAt:]),
		hashes:     order.Uint16(b[trailerHashesAt:]),
	}
	if n := t.pageBytes; n < MinPageBytes || n > MaxPageBytes || n&(n-1) != 0 {
		return trailer{}, fmt.Errorf("page of %d bytes, want a power of two from %d to %d", n, MinPageBytes, MaxPageBytes)
	}
	if t.hashes < 1 || t.hashes > maxHashes {
		return trailer{}, fmt.Errorf("%d hash functions, want 1 to %d", t.hashes, maxHashes)
	}
	return t, nil
}
