package records

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"docstore/internal/eof"
)

// Encoding is the encoding of the characters of a stream. Records are UTF-8 in any case.
type Encoding string

// The encodings. A byte order mark is not part of the first record.
const (
	EncodingAuto        Encoding = "auto" // UTF-16 if the stream begins with its byte order mark, else UTF-8
	EncodingUTF8        Encoding = "utf-8"
	EncodingUTF16       Encoding = "utf-16" // with a byte order mark
	EncodingLatin1      Encoding = "latin1" // ISO 8859-1
	EncodingWindows1252 Encoding = "windows-1252"
)

// Encodings returns the encodings that Open decodes.
func Encodings() []Encoding {
	return []Encoding{EncodingAuto, EncodingUTF8, EncodingUTF16, EncodingLatin1, EncodingWindows1252}
}

// Check returns an error if the encoding is unknown. The empty one is EncodingAuto.
func (e Encoding) Check() error {
	if e != "" && !slices.Contains(Encodings(), e) {
		return fmt.Errorf("unknown encoding %q: want one of %v", string(e), Encodings())
	}
	return nil
}

// Changes reports whether Open decodes a stream that is not compressed and begins with these
// bytes, so that offsets in it are not those of its records.
func (e Encoding) Changes(head []byte) bool {
	switch e {
	case EncodingUTF8:
		return false
	case "", EncodingAuto:
		return byteOrder(head) != nil
	}
	return true
}

// byteOrder returns that of a stream of UTF-16 with a byte order mark; nil: it has none.
func byteOrder(head []byte) binary.ByteOrder {
	switch {
	case len(head) < 2:
	case head[0] == 0xff && head[1] == 0xfe:
		return binary.LittleEndian
	case head[0] == 0xfe && head[1] == 0xff:
		return binary.BigEndian
	}
	return nil
}

// decode returns the stream as UTF-8.
func (e Encoding) decode(in *bufio.Reader) *bufio.Reader {
	var next func(*bufio.Reader) (rune, error)
	switch e {
	case EncodingUTF8:
		return in
	case EncodingLatin1:
		next = readLatin1
	case EncodingWindows1252:
		next = readWindows1252
	default:
		if e != EncodingUTF16 && !begins(in, 2, isMarkStart) {
			return in
		}
		head, err := in.Peek(2)
		order := byteOrder(head)
		switch {
		case eof.Is(err) && len(head) == 0:
			return in
		case order == nil:
			next = func(*bufio.Reader) (rune, error) { return 0, errNoMark }
		default:
			_, _ = in.Discard(2) // they are buffered
			next = utf16Reader{order}.read
		}
	}
	return buffered(&decoder{in: in, next: next})
}

// isMarkStart reports whether these one or two bytes begin a byte order mark of UTF-16.
func isMarkStart(head []byte) bool {
	if len(head) == 1 {
		return head[0] == 0xff || head[0] == 0xfe
	}
	return byteOrder(head) != nil
}

var (
	errNoMark    = errors.New("the stream is not utf-16: it does not begin with a byte order mark")
	errSurrogate = errors.New("the stream is not utf-16: a surrogate is not one of a pair")
)

// decoder converts characters to UTF-8.
type decoder struct {
	in   *bufio.Reader
	next func(*bufio.Reader) (rune, error)
	room [utf8.UTFMax]byte // of rest
	rest []byte            // of the last character, for which there was no room
}

// Read implements io.Reader. It waits for one character at most.
func (d *decoder) Read(p []byte) (n int, err error) {
	for n < len(p) && (n == 0 || d.in.Buffered() > 1) {
		if len(d.rest) == 0 {
			r, err := d.next(d.in)
			if err != nil {
				return n, err
			}
			d.rest = utf8.AppendRune(d.room[:0], r)
		}
		copied := copy(p[n:], d.rest)
		n, d.rest = n+copied, d.rest[copied:]
	}
	return n, nil
}

func readLatin1(in *bufio.Reader) (rune, error) {
	c, err := in.ReadByte()
	return rune(c), err
}

// windows1252 are the characters of the bytes 0x80 to 0x9f, as the WHATWG defines them.
var windows1252 = [32]rune{
	0x20ac, 0x81, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6, 0x2030, 0x160, 0x2039, 0x152, 0x8d, 0x17d, 0x8f,
	0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x2dc, 0x2122, 0x161, 0x203a, 0x153, 0x9d, 0x17e, 0x178,
}

func readWindows1252(in *bufio.Reader) (rune, error) {
	c, err := in.ReadByte()
	if c >= 0x80 && c < 0xa0 {
		return windows1252[c-0x80], err
	}
	return rune(c), err
}

type utf16Reader struct{ order binary.ByteOrder }

func (u utf16Reader) read(in *bufio.Reader) (rune, error) {
	r, err := u.unit(in)
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	second, err := u.unit(in)
	if err != nil {
		return 0, eof.Unexpected(err)
	}
	if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
		return 0, errSurrogate
	}
	return r, nil
}

func (u utf16Reader) unit(in *bufio.Reader) (rune, error) {
	var b [2]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return 0, err
	}
	return rune(u.order.Uint16(b[:])), nil
}
