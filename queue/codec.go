package queue

import (
	"fmt"
	"slices"

	"github.com/cockroachdb/errors"
)

// codecID is a codec's number in a segment's header.
type codecID uint8

const (
	codecNone codecID = 0
	codecLZO  codecID = 1
	codecS2   codecID = 2
	codecZstd codecID = 3
)

// encoder compresses documents one by one. It is safe for concurrent use.
type encoder interface {
	// encode appends the compressed document to dst. False: the document must be stored
	// uncompressed.
	encode(dst, document []byte) ([]byte, bool)
}

// decoder decompresses documents. It is safe for concurrent use.
type decoder interface {
	// decode appends the rawBytes bytes of the document to dst, or fails if stored
	// decodes to another length. Its memory is bounded by a small multiple of rawBytes,
	// whatever stored contains.
	decode(dst, stored []byte, rawBytes int) ([]byte, error)
}

// codec is a compression codec. If it supports no dictionaries, train is nil and the
// dictionary that it is given is empty.
type codec struct {
	id         codecID
	name       string
	newEncoder func(dictionary []byte) (encoder, error)
	newDecoder func(dictionary []byte) (decoder, error)
	// decoderBytes is the memory of a decoder without its dictionary.
	decoderBytes int64
	// train makes a dictionary of about size bytes from sample documents.
	train func(sample [][]byte, size int) ([]byte, error)
}

// codecs are those in this build, by name.
var codecs = []codec{noneCodec, s2Codec, zstdCodec}

// Codecs returns the names of the codecs in this build, sorted.
func Codecs() []string {
	var names []string
	for _, c := range codecs {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}

func codecByName(name string) (codec, error) {
	for _, c := range codecs {
		if c.name == name {
			return c, nil
		}
	}
	return codec{}, errors.Wrapf(ErrUnknownCodec, "%q: this build has %v", name, Codecs())
}

func codecByID(id codecID) (codec, error) {
	for _, c := range codecs {
		if c.id == id {
			return c, nil
		}
	}
	if id == codecLZO {
		return codec{}, fmt.Errorf("segment is compressed with lzo, which this build leaves out (build tag nolzo): %w", ErrUnknownCodec)
	}
	return codec{}, fmt.Errorf("segment is compressed with codec %d: %w", id, ErrUnknownCodec)
}

// errDecodedLength: a document decodes to another length than its entry states.
var errDecodedLength = errors.New("document decodes to a wrong length")

// String is the codec's name, also of a codec that this build lacks.
func (id codecID) String() string {
	switch id {
	case codecNone:
		return "none"
	case codecLZO:
		return "lzo"
	case codecS2:
		return "s2"
	case codecZstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", uint8(id))
}

// noneCodec stores every document uncompressed.
var noneCodec = codec{
	id:         codecNone,
	name:       "none",
	newEncoder: func([]byte) (encoder, error) { return nil, nil },
	newDecoder: func([]byte) (decoder, error) { return noneDecoder{}, nil },
}

type noneDecoder struct{}

func (noneDecoder) decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	if len(stored) != rawBytes {
		return dst, errDecodedLength
	}
	return append(dst, stored...), nil
}
