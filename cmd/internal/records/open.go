package records

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Format is the format of a stream of records.
type Format string

// The formats. FormatAuto detects the format: a file named .csv or .tsv is a table, a
// stream that begins with "[" is an array, others are lines.
const (
	FormatAuto   Format = "auto"
	FormatNDJSON Format = "ndjson"
	FormatJSON   Format = "json"
	FormatCSV    Format = "csv"
	FormatTSV    Format = "tsv"
)

// Formats returns the formats that Open supports.
func Formats() []Format {
	return []Format{FormatAuto, FormatNDJSON, FormatJSON, FormatCSV, FormatTSV}
}

const (
	// maxZstdWindow limits the memory of a zstd stream. It is the limit of zstd itself with
	// --long=27.
	maxZstdWindow = 128 << 20
	// maxLeadingBlanks limits the search for the first character of a stream.
	maxLeadingBlanks = 4 << 10
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

// Detect returns the format of a decompressed stream with the given name that begins with
// these bytes.
func Detect(name string, head []byte) Format {
	name = strings.ToLower(name)
	for _, suffix := range []string{".gz", ".zst", ".bz2", ".xz"} {
		name = strings.TrimSuffix(name, suffix)
	}
	switch path.Ext(name) {
	case ".csv":
		return FormatCSV
	case ".tsv":
		return FormatTSV
	}
	head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
	if bytes.HasPrefix(head, []byte("[")) {
		return FormatJSON
	}
	return FormatNDJSON
}

// Stream reads the records of an opened stream. It is used by one goroutine.
type Stream struct {
	Reader
	Format       Format    // the detected format for FormatAuto
	decompressor io.Closer // nil if there is none
}

// Open opens a stream at its first byte, decompressing it if necessary. FormatAuto uses the
// name; limit is the maximum size of a record in bytes.
func Open(r io.Reader, name string, format Format, limit int, options *Options) (*Stream, error) {
	if !slices.Contains(Formats(), format) {
		return nil, fmt.Errorf("unknown format %q: want one of %v", format, Formats())
	}
	in, decompressor, err := decompress(bufio.NewReaderSize(r, readBufferBytes))
	if err != nil {
		return nil, err
	}
	if format == FormatAuto {
		format = Detect(name, peekText(in))
	}
	if format != FormatNDJSON && beginsWith(in, byteOrderMark) {
		_, _ = in.Discard(len(byteOrderMark)) // they are buffered
	}
	s := &Stream{Format: format, decompressor: decompressor}
	switch format {
	case FormatCSV, FormatTSV:
		s.Reader = newTable(in, format, limit, options)
	case FormatJSON:
		s.Reader = newArray(in, limit)
	default:
		s.Reader = NewLines(in, limit, 0, 0)
	}
	return s, nil
}

// Close ends the decompression. It does not close the underlying reader.
func (s *Stream) Close() error {
	if s.decompressor == nil {
		return nil
	}
	return s.decompressor.Close()
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
		return bufio.NewReaderSize(d, readBufferBytes), d, nil
	case beginsWith(in, zstdMagic):
		d, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return bufio.NewReaderSize(d, readBufferBytes), d.IOReadCloser(), nil
	case beginsWith(in, xzMagic):
		d, err := newXzReader(in)
		if err != nil {
			return nil, nil, err
		}
		return bufio.NewReaderSize(d, readBufferBytes), nil, nil
	case beginsWithBzip2(in):
		return bufio.NewReaderSize(bzip2.NewReader(in), readBufferBytes), nil, nil
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

// peekText returns the beginning of a stream up to its first character that is not white
// space. Errors are reported by the next read.
func peekText(in *bufio.Reader) []byte {
	for n := 1; ; n++ {
		head, err := in.Peek(n)
		if err != nil || n == maxLeadingBlanks || strings.IndexByte("\ufeff \t\r\n", head[n-1]) < 0 {
			return head
		}
	}
}

// limiter reads a stream until it is too far ahead of the records returned: the libraries
// that split tables and arrays would otherwise buffer a record of any size, and an
// unterminated one never ends.
type limiter struct {
	in     io.Reader
	limit  int
	passed int64
	taken  int64 // offset after the last record
}

// aheadFactor: the libraries double their buffers to hold a record, and then fill them.
const aheadFactor = 4

var errEndless = errors.New("a record does not end: is a quote missing")

func (l *limiter) Read(p []byte) (int, error) {
	if l.passed-l.taken > aheadFactor*int64(l.limit)+readBufferBytes {
		return 0, errEndless
	}
	n, err := l.in.Read(p)
	l.passed += int64(n)
	return n, err
}
