package codec

import (
	"slices"

	"github.com/klauspost/compress/s2"
)

// s2Codec is the block format of klauspost/compress/s2, with or without a dictionary.
// Package queue has its own encoder and decoder for those with a dictionary; see
// codec_s2_encode.go and codec_s2_decode.go. For the others it uses the "better" of the
// library's three levels: on records of 900 bytes that stores 10 % less than the fastest.
var s2Codec = Codec{
	ID:   S2,
	Name: "s2",
	NewEncoder: func(dictionary []byte) (Encoder, error) {
		d, err := s2Dictionary(dictionary)
		if d == nil {
			return s2Coder{}, err
		}
		return s2Coder{d, newS2Encoder(dictionary)}, nil
	},
	NewDecoder: func(dictionary []byte) (Decoder, error) {
		d, err := s2Dictionary(dictionary)
		if d == nil {
			return s2Coder{}, err
		}
		return newS2Decoder(dictionary), nil
	},
	Train: trainS2,
}

type s2Coder struct {
	dictionary *s2.Dict   // nil: none
	optimal    *s2Encoder // with the dictionary
}

func s2Dictionary(dictionary []byte) (*s2.Dict, error) {
	if len(dictionary) == 0 {
		return nil, nil
	}
	d := s2.NewDict(dictionary)
	if d == nil {
		return nil, ErrBadDictionary
	}
	return d, nil
}

func (c s2Coder) Encode(dst, document []byte) ([]byte, bool) {
	if c.optimal != nil && len(document) <= s2MaxOptimal {
		return c.optimal.Encode(dst, document), true
	}
	n := s2.MaxEncodedLen(len(document))
	if n < 0 {
		return dst, false
	}
	dst = slices.Grow(dst, n)
	room := dst[len(dst) : len(dst)+n]
	var out []byte
	if c.dictionary != nil {
		out = c.dictionary.EncodeBetter(room, document)
	} else {
		out = s2.EncodeBetter(room, document)
	}
	return dst[:len(dst)+len(out)], true // out is in dst, which was large enough
}

// s2LibraryBytes is the size up to which the library decodes documents. It is faster, but
// it is written in assembly, which Go cannot preempt: during the 30 ms for a document of
// 16 MiB a garbage collection would stop all other goroutines.
const s2LibraryBytes = 256 << 10

// s2Plain decodes blocks without a dictionary.
var s2Plain = &s2Decoder{padded: make([]byte, s2Wide)}

// decode decodes blocks without a dictionary; newS2Decoder is for the others.
func (c s2Coder) Decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	if rawBytes > s2LibraryBytes {
		return s2Plain.Decode(dst, stored, rawBytes)
	}
	if n, err := s2.DecodedLen(stored); err != nil || n != rawBytes {
		return dst, errDecodedLength
	}
	dst = slices.Grow(dst, rawBytes)
	room := dst[len(dst) : len(dst)+rawBytes]
	if _, err := s2.Decode(room, stored); err != nil {
		return dst, err
	}
	return dst[:len(dst)+rawBytes], nil
}

// trainS2 concatenates whole documents from all over the sample. On real records such a
// dictionary stores 5 % less than one of the strings that klauspost's builder selects,
// and takes no time to make.
func trainS2(sample [][]byte, size int) ([]byte, error) {
	size = min(size, s2.MaxDictSize)
	var total, passed int
	for _, document := range sample {
		total += len(document)
	}
	var content []byte
	for _, document := range sample {
		passed += len(document)
		if len(content) < passed*size/total {
			content = append(content, document...)
		}
	}
	content = content[:min(len(content), size)]
	if len(content) < s2.MinDictSize {
		return nil, ErrSampleTooSmall
	}
	start := sample[0][:min(len(sample[0]), maxCommonStart)]
	return s2.MakeDict(content, start).Bytes(), nil
}

// maxCommonStart bounds the length of a common document prefix that is searched for; the
// time grows with the square of the length.
const maxCommonStart = 32
