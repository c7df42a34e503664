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

// encoder compresses documents one by one, for many goroutines at once.
type encoder interface {
	// encode appends the document compressed to dst. False: it could not, and
	// the document is better stored as it is.
	encode(dst, document []byte) ([]byte, bool)
}

// decoder undoes an encoder, for many goroutines at once.
type decoder interface {
	// decode appends the rawBytes bytes of the document to dst, or fails if
	// stored decodes to more or fewer. It never needs more memory than a few
	// times rawBytes, whatever stored holds.
	decode(dst, stored []byte, rawBytes int) ([]byte, error)
}

// codec is a way to compress documents. Where it knows no dictionaries, train
// is nil and the dictionary it is given is empty.
type codec struct {
	id         codecID
	name       string
	newEncoder func(dictionary []byte) (encoder, error)
	newDecoder func(dictionary []byte) (decoder, error)
	// decoderBytes is what a decoder takes besides its dictionary.
	decoderBytes int64
	// train makes a dictionary of about size bytes from sample documents.
	train func(sample [][]byte, size int) ([]byte, error)
}

// codecs are those in this build, by name.
var codecs = []codec{noneCodec, s2Codec, zstdCodec}

// Codecs are the names of the codecs in this build, sorted.
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

// errDecodedLength: a document decodes to another length than its entry says.
var errDecodedLength = errors.New("document decodes to another length than it had")

// String is the codec's name, also of one that this build leaves out.
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
