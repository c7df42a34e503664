package codec

import (
	"runtime"
	"slices"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
)

// zstdCodec is Zstandard with one frame a document, without the four bytes of magic
// ("magicless" in zstd's terms), without zstd's checksum, and with a dictionary id of one
// byte. It uses the third of four levels, "better": with a dictionary it takes twice as
// long as the fastest, stores 5 % less, and decodes as fast. The second level takes as
// long as the third and stores hardly less than the first.
var zstdCodec = Codec{
	ID:         Zstd,
	Name:       "zstd",
	NewEncoder: newZstdEncoder,
	NewDecoder: newZstdDecoder,
	Train:      trainZstd,

	DecoderBytes: zstdDecoderBytes,
}

// ZstdMagic begins a frame; stored documents omit it.
const ZstdMagic = "\x28\xb5\x2f\xfd"

const (
	zstdLevel        = zstd.SpeedBetterCompression
	zstdDictionaryID = 1 // each decoder has one dictionary, so a constant is enough
	// zstdWindowBytes bounds the distance of a match and with it the memory of the
	// encoder. Documents are expected to be smaller.
	zstdWindowBytes = 256 << 10
	// zstdDecoderBytes estimates the memory of a decoder without its dictionary: 38 KiB
	// for one goroutine at a time, more for several.
	zstdDecoderBytes = 64 << 10
)

type zstdEncoder struct{ *zstd.Encoder }

func newZstdEncoder(dictionary []byte) (Encoder, error) {
	return zstdEncoderOf(zstdLevel, zstdWindowBytes, dictionary)
}

func zstdEncoderOf(level zstd.EncoderLevel, windowBytes int, dictionary []byte) (Encoder, error) {
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

func (e zstdEncoder) Encode(dst, document []byte) ([]byte, bool) {
	start := len(dst)
	dst = e.EncodeAll(document, dst)
	stored := dst[start:]
	if len(stored) < len(ZstdMagic) || string(stored[:len(ZstdMagic)]) != ZstdMagic {
		return dst[:start], false
	}
	n := copy(stored, stored[len(ZstdMagic):])
	return dst[:start+n], true
}

type zstdDecoder struct{ *zstd.Decoder }

func newZstdDecoder(dictionary []byte) (Decoder, error) {
	options := []zstd.DOption{
		zstd.WithDecoderConcurrency(0), // one per processor
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

func (d zstdDecoder) Decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	s := getBuffer()
	defer s.release()
	s.bytes = append(append(s.bytes[:0], ZstdMagic...), stored...)
	dst = slices.Grow(dst, rawBytes)
	// The capacity is the limit: a longer frame is an error.
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
