package codec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Limits.
const (
	MaxDocumentBytes   = 16 << 20  // a document
	MaxDictionaryBytes = 256 << 10 // a dictionary
)

// Errors. Compare with errors.Is.
var (
	// ErrUnknown: this program has no codec of that name or number.
	ErrUnknown = errors.New("queue: unknown codec")
	// ErrBadDictionary: the bytes are not a dictionary of the codec.
	ErrBadDictionary = errors.New("dictionary is not valid for its codec")
	// ErrSampleTooSmall: a dictionary needs more or longer sample documents.
	ErrSampleTooSmall = errors.New("sample is too small to train from")
)

// ID is a codec's number in a segment's header.
type ID uint8

// The numbers of codecs.
const (
	None ID = 0
	LZO  ID = 1
	S2   ID = 2
	Zstd ID = 3
)

// Encoder compresses documents one by one. It is safe for concurrent use.
type Encoder interface {
	// Encode appends the compressed document to dst. False: the document must be stored
	// uncompressed.
	Encode(dst, document []byte) ([]byte, bool)
}

// Decoder decompresses documents. It is safe for concurrent use.
type Decoder interface {
	// Decode appends the rawBytes bytes of the document to dst, or fails if stored
	// decodes to another length. Its memory is bounded by a small multiple of rawBytes,
	// whatever stored contains.
	Decode(dst, stored []byte, rawBytes int) ([]byte, error)
}

// Codec is a compression codec. If it supports no dictionaries, Train is nil and the
// dictionary that it is given is empty.
type Codec struct {
	ID   ID
	Name string
	// NewEncoder returns nil if the codec stores every document uncompressed.
	NewEncoder func(dictionary []byte) (Encoder, error)
	NewDecoder func(dictionary []byte) (Decoder, error)
	// DecoderBytes is the memory of a decoder without its dictionary.
	DecoderBytes int64
	// Train makes a dictionary of about size bytes from sample documents.
	Train func(sample [][]byte, size int) ([]byte, error)
}

// codecs are those in this program.
var codecs = []Codec{noneCodec, s2Codec, zstdCodec}

// Register adds a codec. An init function calls it: see package lzo.
func Register(c Codec) {
	if slices.ContainsFunc(codecs, func(o Codec) bool { return o.ID == c.ID || o.Name == c.Name }) {
		panic(fmt.Sprintf("codec: %s, number %d, is registered twice", c.Name, uint8(c.ID)))
	}
	codecs = append(codecs, c)
}

// All returns the codecs in this program. The caller must not modify the slice.
func All() []Codec { return codecs }

// Names returns the names of the codecs in this program, sorted.
func Names() []string {
	var names []string
	for _, c := range codecs {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

// ByName returns the codec of a name, or ErrUnknown.
func ByName(name string) (Codec, error) {
	for _, c := range codecs {
		if c.Name == name {
			return c, nil
		}
	}
	return Codec{}, fmt.Errorf("%q: this build has %v: %w", name, Names(), ErrUnknown)
}

// ByID returns the codec with a number, or ErrUnknown.
func ByID(id ID) (Codec, error) {
	for _, c := range codecs {
		if c.ID == id {
			return c, nil
		}
	}
	if id == LZO {
		return Codec{}, fmt.Errorf("segment is compressed with lzo, which this program lacks (build tag nolzo, or package docstore/queue/codec/lzo is not imported): %w", ErrUnknown)
	}
	return Codec{}, fmt.Errorf("segment is compressed with codec %d: %w", id, ErrUnknown)
}

// errDecodedLength: a document decodes to another length than its entry states.
var errDecodedLength = errors.New("document decodes to a wrong length")

// String is the codec's name, also of a codec that this program lacks.
func (id ID) String() string {
	switch id {
	case None:
		return "none"
	case LZO:
		return "lzo"
	case S2:
		return "s2"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", uint8(id))
}

// Set is a set of codecs: bit n is the codec with the number n in segment headers. Sets of
// other programs may have bits that this one does not know.
type Set uint32

// Has reports whether the codec is in the set.
func (s Set) Has(id ID) bool { return id < 32 && s&(1<<id) != 0 }

// Built returns the codecs of this program.
func Built() Set {
	var set Set
	for _, c := range codecs {
		set |= 1 << c.ID
	}
	return set
}

// DictionaryHash identifies a dictionary: the first half of the SHA-256 of its bytes.
type DictionaryHash [16]byte

// HashDictionary returns the hash of a dictionary.
func HashDictionary(dictionary []byte) DictionaryHash {
	sum := sha256.Sum256(dictionary)
	return DictionaryHash(sum[:16])
}

// String is the hash in hex.
func (h DictionaryHash) String() string { return hex.EncodeToString(h[:]) }

// noneCodec stores every document uncompressed.
var noneCodec = Codec{
	ID:         None,
	Name:       "none",
	NewEncoder: func([]byte) (Encoder, error) { return nil, nil },
	NewDecoder: func([]byte) (Decoder, error) { return noneDecoder{}, nil },
}

type noneDecoder struct{}

func (noneDecoder) Decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	if len(stored) != rawBytes {
		return dst, errDecodedLength
	}
	return append(dst, stored...), nil
}
