package records

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func utf16Of(order binary.AppendByteOrder, text string) (b []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return b
}

func TestEncodings(t *testing.T) {
	const lines = "{\"id\":\"é€\U0001f600\"}\n{\"id\":\"b\"}\n"
	both := strings.Split(strings.TrimSuffix(lines, "\n"), "\n")
	for _, test := range []struct {
		name, stream string
		encoding     Encoding
		want         []string
	}{
		{"utf-8", lines, "", both},
		{"utf-8 with a mark", "\ufeff" + lines, EncodingUTF8, both},
		{"little endian", string(utf16Of(binary.LittleEndian, "\ufeff"+lines)), EncodingAuto, both},
		{"big endian", string(utf16Of(binary.BigEndian, "\ufeff"+lines)), EncodingUTF16, both},
		{"array", string(utf16Of(binary.LittleEndian, "\ufeff["+both[0]+"]")), "", both[:1]},
		{"latin1", "{\"id\":\"\xe9\x80\"}", EncodingLatin1, []string{"{\"id\":\"é\u0080\"}"}},
		{"windows-1252", "{\"id\":\"\xe9\x80\x81\x9f\"}", EncodingWindows1252, []string{"{\"id\":\"é€\u0081Ÿ\"}"}},
		{"empty", "", EncodingUTF16, nil},
		{"half a mark", "\xff", "", []string{"\xff"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, stream := range []string{test.stream, gzipped(test.stream)} {
				for _, in := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
					s, err := Open(in, "in", FormatAuto, testLimit, &Options{Encoding: test.encoding})
					require.NoError(t, err)
					require.Equal(t, test.want, texts(t, s))
				}
			}
		})
	}
	require.Equal(t, []string{`{"id":"é"}`}, texts(t, open(t, bytes.NewReader(utf16Of(binary.LittleEndian, "\ufeffid\né\n")), "in.csv", FormatAuto)))
}

func TestBadEncodings(t *testing.T) {
	for _, test := range []struct{ name, stream, want string }{
		{"no mark", "{}\n", "the stream is not utf-16: it does not begin with a byte order mark"},
		{"one byte", "\xff", "the stream is not utf-16: it does not begin with a byte order mark"},
		{"half a character", "\xff\xfe{\x00}", "unexpected EOF"},
		{"half a pair", "\xff\xfe\x00\xd8", "unexpected EOF"},
		{"second surrogate", "\xff\xfe\x00\xdc{\x00", "the stream is not utf-16: a surrogate is not one of a pair"},
		{"first surrogate", "\xff\xfe\x00\xd8{\x00", "the stream is not utf-16: a surrogate is not one of a pair"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Open(strings.NewReader(test.stream), "in", FormatNDJSON, testLimit, &Options{Encoding: EncodingUTF16})
			require.NoError(t, err)
			for err == nil {
				_, err = s.Next()
			}
			require.EqualError(t, err, test.want)
		})
	}
	require.EqualError(t, Encoding("latin2").Check(), `unknown encoding "latin2": want one of [auto utf-8 utf-16 latin1 windows-1252]`)
	require.NoError(t, Encoding("").Check())
	for _, encoding := range Encodings() {
		require.NoError(t, encoding.Check())
	}
}

// FuzzEncoding: a decoded stream is UTF-8, and of the characters that were encoded.
func FuzzEncoding(f *testing.F) {
	f.Add([]byte("\xff\xfea\x00"), "a\U0001f600")
	f.Add([]byte("\xfe\xff\xd8\x00\xdc\x00"), "\ufeffé")
	f.Fuzz(func(t *testing.T, stream []byte, text string) {
		for _, encoding := range []Encoding{EncodingUTF16, EncodingLatin1, EncodingWindows1252} {
			decoded, err := io.ReadAll(encoding.decode(buffered(bytes.NewReader(stream))))
			require.True(t, utf8.Valid(decoded))
			if encoding != EncodingUTF16 {
				require.NoError(t, err)
				require.Equal(t, len(stream), utf8.RuneCount(decoded))
			}
		}
		if !utf8.ValidString(text) {
			return
		}
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			in := bytes.NewReader(utf16Of(order, "\ufeff"+text))
			decoded, err := io.ReadAll(iotest.OneByteReader(EncodingAuto.decode(buffered(in))))
			require.NoError(t, err)
			require.Equal(t, text, string(decoded))
		}
	})
}
