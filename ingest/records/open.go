package records

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
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

// maxLeadingBlanks limits the search for the first character of a stream.
const maxLeadingBlanks = 4 << 10

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
	in, decompressor, err := decompress(buffered(r))
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
