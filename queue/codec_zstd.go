package queue

import (
	"runtime"
	"slices"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
)

// zstdCodec is Zstandard, a frame a document, without the four bytes of magic
// that begin each ("magicless" in zstd's own terms), without a checksum of its
// own and with a dictionary id of one byte. It takes the third of four levels,
// "better": with a dictionary that takes twice as long as the fastest, for a
// twentieth less, and fetches as fast. The level between the two takes as long as
// this one and stores hardly less than the fastest.
var zstdCodec = codec{
	id:         codecZstd,
	name:       "zstd",
	newEncoder: newZstdEncoder,
	newDecoder: newZstdDecoder,
	train:      trainZstd,

	decoderBytes: zstdDecoderBytes,
}

const (
	zstdMagic        = "\x28\xb5\x2f\xfd"
	zstdLevel        = zstd.SpeedBetterCompression
	zstdDictionaryID = 1 // each decoder knows one dictionary, so all may be the same
	// zstdWindowBytes bounds how far back a match can lie and with it the memory
	// of the encoder; documents of a megabyte are not what this is for.
	zstdWindowBytes = 256 << 10
	// zstdDecoderBytes is what a decoder takes besides its dictionary: 38 KiB where one
	// goroutine decodes at a time, and more where several do.
	zstdDecoderBytes = 64 << 10
)

type zstdEncoder struct{ *zstd.Encoder }

func newZstdEncoder(dictionary []byte) (encoder, error) {
	return zstdEncoderOf(zstdLevel, zstdWindowBytes, dictionary)
}

func zstdEncoderOf(level zstd.EncoderLevel, windowBytes int, dictionary []byte) (encoder, error) {
	options := []zstd.EOption{
		zstd.WithEncoderLevel(level),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(windowBytes),
		zstd.WithSingleSegment(true),
	}
	if len(dictionary) > 0 {
		options = append(options, zstd.WithEncoderDict(dictionary))
	}
	e, err := zstd.NewWriter(nil, options...)
	if err != nil {
		return nil, err
	}
	return zstdEncoder{e}, nil
}

func (e zstdEncoder) encode(dst, document []byte) ([]byte, bool) {
	start := len(dst)
	dst = e.EncodeAll(document, dst)
	stored := dst[start:]
	if len(stored) < len(zstdMagic) || string(stored[:len(zstdMagic)]) != zstdMagic {
		return dst[:start], false
	}
	n := copy(stored, stored[len(zstdMagic):])
	return dst[:start+n], true
}

type zstdDecoder struct{ *zstd.Decoder }

func newZstdDecoder(dictionary []byte) (decoder, error) {
	options := []zstd.DOption{
		zstd.WithDecoderConcurrency(0), // one for each processor
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxDocumentBytes),
		zstd.WithDecodeAllCapLimit(true),
	}
	if len(dictionary) > 0 {
		options = append(options, zstd.WithDecoderDicts(dictionary))
	}
	d, err := zstd.NewReader(nil, options...)
	if err != nil {
		return nil, err
	}
	return zstdDecoder{d}, nil
}

func (d zstdDecoder) decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	s := getScratch()
	defer s.release()
	s.bytes = append(append(s.bytes[:0], zstdMagic...), stored...)
	dst = slices.Grow(dst, rawBytes)
	// The capacity is the limit: a frame that holds more is an error.
	out, err := d.DecodeAll(s.bytes, dst[len(dst):len(dst):len(dst)+rawBytes])
	if err != nil {
		return dst, err
	}
	if len(out) != rawBytes {
		return dst, errDecodedLength
	}
	return dst[:len(dst)+rawBytes], nil
}

func trainZstd(sample [][]byte, size int) ([]byte, error) {
	return dict.BuildZstdDict(sample, dict.Options{
		MaxDictSize: size,
		HashBytes:   6,
		ZstdDictID:  zstdDictionaryID,
		ZstdLevel:   zstdLevel,
	})
}
