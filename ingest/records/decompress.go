package records

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"docstore/internal/eof"
)

// maxZstdWindow limits the memory of a zstd stream. It is the limit of zstd itself with
// --long=27.
const maxZstdWindow = 128 << 20

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	// zstdSkippable begins a frame without data, behind a first byte of 0x50 to 0x5f. pzstd
	// writes one before each frame.
	zstdSkippable = []byte{0x2a, 0x4d, 0x18}
)

// IsCompressed reports whether Open decompresses a stream that begins with these bytes.
func IsCompressed(head []byte) bool {
	return bytes.HasPrefix(head, gzipMagic) || isZstd(head) && len(head) >= len(zstdMagic) || bytes.HasPrefix(head, xzMagic) || isBzip2(head) && len(head) >= bzip2MagicBytes
}

// TrimCompression returns a name of a file without the ending of a compression.
func TrimCompression(name string) string {
	for _, suffix := range []string{".gz", ".zst", ".bz2", ".xz"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// isZstd reports whether these first bytes, of any number, are those of a zstd stream.
func isZstd(head []byte) bool {
	head = head[:min(len(head), len(zstdMagic))]
	return bytes.HasPrefix(zstdMagic, head) || head[0]&0xf0 == 0x50 && bytes.HasPrefix(zstdSkippable, head[1:])
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

// decompress returns the decompressed stream, and what to close; nil: nothing. It peeks only at the
// bytes needed to detect the compression: further bytes of a pipe may be delayed.
func decompress(in *bufio.Reader) (io.Reader, io.Closer, error) {
	switch {
	case beginsWith(in, gzipMagic):
		d, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, err
		}
		return &gzipReader{in, d}, d, nil
	case begins(in, len(zstdMagic), isZstd):
		d, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return zstdReader{d}, d.IOReadCloser(), nil
	case beginsWith(in, xzMagic):
		d, err := newXzReader(in)
		if err != nil {
			return nil, nil, err
		}
		return d, nil, nil
	case begins(in, bzip2MagicBytes, isBzip2):
		return bzip2.NewReader(in), nil, nil
	}
	return in, nil, nil
}

// begins reports whether the first n bytes of a stream, and each fewer, are those that is accepts.
func begins(in *bufio.Reader, n int, is func(head []byte) bool) bool {
	for i := 1; i <= n; i++ {
		head, err := in.Peek(i)
		if err != nil || !is(head) {
			return false
		}
	}
	return true
}

func beginsWith(in *bufio.Reader, magic []byte) bool {
	return begins(in, len(magic), func(head []byte) bool { return bytes.HasPrefix(magic, head) })
}

// zstdReader names the limit in the error of a window that is too large.
type zstdReader struct{ *zstd.Decoder }

func (z zstdReader) Read(p []byte) (int, error) {
	n, err := z.Decoder.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("zstd: a frame needs a window of more than the limit of %d bytes; compress with --long=27 or less", maxZstdWindow)
	}
	return n, err
}

// gzipReader reads any number of members. Zeros may follow the last one, as programs that write
// whole blocks add them.
type gzipReader struct {
	in *bufio.Reader
	*gzip.Reader
}

func (g *gzipReader) Read(p []byte) (int, error) {
	g.Multistream(false)
	n, err := g.Reader.Read(p)
	if eof.Is(err) {
		err = g.next()
	}
	return n, err
}

// next starts the next member.
func (g *gzipReader) next() error {
	zeros := false
	for {
		switch next, err := g.in.Peek(1); {
		case err != nil:
			return err
		case next[0] == 0:
			zeros = true
			_, _ = g.in.Discard(1) // it is buffered
		case zeros:
			return errors.New("gzip: other data follows the zeros behind a member")
		default:
			return eof.Unexpected(g.Reset(g.in))
		}
	}
}
