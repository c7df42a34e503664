package parquet

import (
	"bytes"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"

	"docstore/internal/eof"
)

// decompressor decompresses pages. The zero value is ready.
type decompressor struct {
	source bytes.Reader
	gzip   *gzip.Reader
	brotli *brotli.Reader
	zstd   *zstd.Decoder
}

// decompress decompresses src into exactly dst. It needs no memory for more, whatever src is.
func (d *decompressor) decompress(codec format.CompressionCodec, dst, src []byte) error {
	if len(dst) == 0 && len(src) == 0 {
		return nil // a page of nulls: there is nothing to decompress
	}
	n, err := d.decode(codec, dst, src)
	if err != nil {
		return fmt.Errorf("decompressing %s: %w", codec, eof.Unexpected(err))
	}
	if n != len(dst) {
		return fmt.Errorf("decompressing %s: it has %d bytes, not %d as its header states: %w", codec, n, len(dst), parquet.ErrCorrupted)
	}
	return nil
}

// decode returns the decompressed size, any larger one if it exceeds dst.
func (d *decompressor) decode(codec format.CompressionCodec, dst, src []byte) (int, error) {
	switch codec {
	case format.Uncompressed:
		return max(copy(dst, src), len(src)), nil
	case format.Snappy:
		n, err := s2.DecodedLen(src)
		if err == nil && n <= len(dst) {
			_, err = s2.Decode(dst, src)
		}
		return n, err
	case format.Lz4Raw:
		return lz4.UncompressBlock(src, dst)
	case format.Zstd:
		return d.decodeZstd(dst, src)
	case format.Gzip:
		return d.decodeGzip(dst, src)
	case format.Brotli:
		d.source.Reset(src)
		if d.brotli == nil {
			d.brotli = brotli.NewReader(&d.source)
		} else if err := d.brotli.Reset(&d.source); err != nil {
			return 0, err
		}
		return readWhole(d.brotli, dst)
	}
	return 0, fmt.Errorf("this compression is not supported; write the file with SNAPPY, GZIP, BROTLI, ZSTD, LZ4_RAW or UNCOMPRESSED")
}

func (d *decompressor) decodeZstd(dst, src []byte) (int, error) {
	if d.zstd == nil {
		var err error
		if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true)); err != nil {
			return 0, err
		}
	}
	decoded, err := d.zstd.DecodeAll(src, dst[:0:len(dst)])
	return len(decoded), err
}

func (d *decompressor) decodeGzip(dst, src []byte) (n int, err error) {
	d.source.Reset(src)
	if d.gzip == nil {
		d.gzip, err = gzip.NewReader(&d.source)
	} else {
		err = d.gzip.Reset(&d.source)
	}
	if err != nil {
		return 0, err
	}
	return readWhole(d.gzip, dst)
}

// readWhole fills dst, and reads one byte more to verify the end.
func readWhole(r io.Reader, dst []byte) (int, error) {
	n, err := io.ReadFull(r, dst)
	if err != nil && len(dst) > 0 {
		return n, err
	}
	var more [1]byte
	extra, err := io.ReadFull(r, more[:])
	if eof.Is(err) {
		err = nil
	}
	return n + extra, err
}
