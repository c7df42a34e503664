package records

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxZstdWindow limits the memory of a zstd stream. It is the limit of zstd itself with
	// --long=27.
	maxZstdWindow = 128 << 20
)

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// IsCompressed reports whether Open decompresses a stream that begins with these bytes.
func IsCompressed(head []byte) bool {
	return bytes.HasPrefix(head, gzipMagic) || bytes.HasPrefix(head, zstdMagic) || bytes.HasPrefix(head, xzMagic) || isBzip2(head) && len(head) >= bzip2MagicBytes
}

// A bzip2 stream begins with "BZh", a digit, and the number of a block or, if it is empty,
// of the end.
const (
	bzip2Block      = "\x31\x41\x59\x26\x53\x59"
	bzip2End        = "\x17\x72\x45\x38\x50\x90"
	bzip2MagicBytes = 4 + len(bzip2Block)
)

// isBzip2 reports whether these first bytes, of any number, are those of a bzip2 stream.
func isBzip2(head []byte) bool {
	head = head[:min(len(head), bzip2MagicBytes)]
	n := min(len(head), 3)
	if string(head[:n]) != "BZh"[:n] || len(head) > 3 && (head[3] < '1' || head[3] > '9') {
		return false
	}
	rest := string(head[min(len(head), 4):])
	return strings.HasPrefix(bzip2Block, rest) || strings.HasPrefix(bzip2End, rest)
}

// decompress peeks only at the bytes needed to detect the compression: further bytes of a
// pipe may be delayed.
func decompress(in *bufio.Reader) (*bufio.Reader, io.Closer, error) {
	switch {
	case beginsWith(in, gzipMagic):
		d, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, err
		}
		return buffered(d), d, nil
	case beginsWith(in, zstdMagic):
		d, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return buffered(d), d.IOReadCloser(), nil
	case beginsWith(in, xzMagic):
		d, err := newXzReader(in)
		if err != nil {
			return nil, nil, err
		}
		return buffered(d), nil, nil
	case beginsWithBzip2(in):
		return buffered(bzip2.NewReader(in)), nil, nil
	}
	return in, nil, nil
}

func beginsWithBzip2(in *bufio.Reader) bool {
	for n := 1; n <= bzip2MagicBytes; n++ {
		head, err := in.Peek(n)
		if err != nil || !isBzip2(head) {
			return false
		}
	}
	return true
}

func beginsWith(in *bufio.Reader, magic []byte) bool {
	for n := 1; n <= len(magic); n++ {
		head, err := in.Peek(n)
		if err != nil || head[n-1] != magic[n-1] {
			return false
		}
	}
	return true
}
