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
// stream is JSON that begins with "[", with an object of several lines, or with two objects in a
// line, and others are lines.
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
	switch path.Ext(TrimCompression(strings.ToLower(name))) {
	case ".csv":
		return FormatCSV
	case ".tsv":
		return FormatTSV
	}
	head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
	if bytes.HasPrefix(head, []byte("[")) || isSequence(head) {
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
	in := buffered(r)
	text, decompressor, err := decompress(in)
	if err != nil {
		return nil, err
	}
	if text != in {
		in = buffered(text)
	}
	in = options.withDefaults().Encoding.decode(in)
	if format == FormatAuto {
		format = Detect(name, peekLine(in))
	}
	if format != FormatNDJSON && beginsWith(in, byteOrderMark) {
		_, _ = in.Discard(len(byteOrderMark)) // they are buffered
	}
	s := &Stream{Format: format, decompressor: decompressor}
	switch format {
	case FormatCSV, FormatTSV:
		s.Reader = newTable(in, format, limit, options)
	case FormatJSON:
		s.Reader = newValues(in, limit)
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

// ReadObject reads a stream that is one JSON object, decompressing it if necessary.
func ReadObject(r io.Reader, limit int) ([]byte, error) {
	text, decompressor, err := decompress(bufio.NewReader(&sticky{in: r}))
	if err != nil {
		return nil, err
	}
	if decompressor != nil {
		defer decompressor.Close() // its errors are those of reading
	}
	all, err := io.ReadAll(io.LimitReader(text, int64(limit)+1))
	switch {
	case err != nil:
		return nil, err
	case len(all) > limit:
		return nil, tooLong(limit)
	}
	object := bytes.Trim(bytes.TrimPrefix(all, byteOrderMark), " \t\r\n")
	s := scanner{data: object}
	if err := s.value(); err != nil {
		return nil, asProblem(err)
	}
	if s.at < len(object) || object[0] != '{' {
		return nil, errors.New("the file is not one JSON object")
	}
	return object, nil
}

// peekLine returns the beginning of a stream up to the end of its first line that is not blank, or
// what fits into the buffer. A line of a pipe is needed in any case, and further ones may be delayed.
// Errors are reported by the next read.
func peekLine(in *bufio.Reader) []byte {
	head := peekText(in)
	for at := max(len(head)-1, 0); ; {
		head, _ = in.Peek(in.Buffered()) // within the buffer: no error
		if i := bytes.IndexByte(head[at:], '\n'); i >= 0 {
			return head[:at+i+1]
		}
		if _, err := in.Peek(len(head) + 1); err != nil {
			return head
		}
	}
}

// peekText returns the beginning of a stream up to its first character that is not white
// space.
func peekText(in *bufio.Reader) []byte {
	for n := 1; ; n++ {
		head, err := in.Peek(n)
		if err != nil || n == maxLeadingBlanks || strings.IndexByte("\ufeff \t\r\n", head[n-1]) < 0 {
			return head
		}
	}
}
