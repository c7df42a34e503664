package pgjson

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Append appends the JSON of a value, given in PostgreSQL's text form, to dst. If the text is
// invalid it appends a string and returns an error, so that dst remains JSON.
func (t *Type) Append(dst, text []byte) ([]byte, error) {
	start := len(dst)
	var err error
	if t.element != nil {
		dst, err = t.appendArray(dst, text)
	} else {
		dst, err = t.append(dst, text)
	}
	if err != nil {
		dst, _ = appendText(dst[:start], text) // the first problem is reported
	}
	return dst, err
}

// AppendPlain appends the value as it is used in an id: bytes and timestamps as in JSON, but
// bytes unencoded, all others as PostgreSQL writes them.
func (t *Type) AppendPlain(dst, text []byte) ([]byte, error) {
	switch {
	case t.bytes:
		return appendHex(dst, text)
	case t.timestamp:
		start := len(dst)
		dst, err := t.append(dst, text)
		return append(dst[:start], dst[start+1:len(dst)-1]...), err // without the quotes
	}
	return append(dst, text...), nil
}

func appendBool(dst, text []byte) ([]byte, error) {
	switch string(text) {
	case "t":
		return append(dst, "true"...), nil
	case "f":
		return append(dst, "false"...), nil
	}
	return dst, fmt.Errorf("%q is not a boolean", text)
}

func appendNumber(dst, text []byte) ([]byte, error) {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		return appendText(dst, text)
	}
	if !isNumber(text) {
		return dst, fmt.Errorf("%q is not a number", text)
	}
	return append(dst, text...), nil
}

// isNumber reports whether text is a number of JSON.
func isNumber(text []byte) bool {
	digits := func() bool {
		n := 0
		for n < len(text) && '0' <= text[n] && text[n] <= '9' {
			n++
		}
		text = text[n:]
		return n > 0
	}
	skip := func(chars string) bool {
		found := len(text) > 0 && bytes.IndexByte([]byte(chars), text[0]) >= 0
		if found {
			text = text[1:]
		}
		return found
	}
	skip("-")
	if zero := skip("0"); !zero && !digits() {
		return false
	}
	if skip(".") && !digits() {
		return false
	}
	if skip("eE") {
		skip("+-")
		if !digits() {
			return false
		}
	}
	return len(text) == 0
}

func appendJSON(dst, text []byte) ([]byte, error) {
	if !json.Valid(text) {
		return dst, errors.New("the value of a json column is not valid JSON")
	}
	if !utf8.Valid(text) {
		return dst, errNotUTF8
	}
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return append(dst, text...), nil
	}
	room := bytes.NewBuffer(dst)
	err := json.Compact(room, text)
	return room.Bytes(), err
}

const timestampBytes = len("2006-01-02 15:04:05")

// isTimestamp reports whether text begins with a date and a time of years 1 to 9999 and ends
// with at most a fraction.
func isTimestamp(text []byte) bool {
	const form = "0000-00-00 00:00:00"
	if len(text) < timestampBytes {
		return false
	}
	for i, c := range text {
		digit := '0' <= c && c <= '9'
		switch {
		case i >= timestampBytes+1 || i < timestampBytes && form[i] == '0':
			if !digit {
				return false
			}
		case i == timestampBytes:
			if c != '.' {
				return false
			}
		case c != form[i]:
			return false
		}
	}
	return len(text) != timestampBytes+1
}

func appendTimestamp(dst, text []byte) ([]byte, error) {
	if !isTimestamp(text) {
		return appendText(dst, text)
	}
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, text...)
	dst[start+len("2006-01-02")] = 'T'
	return append(dst, '"'), nil
}

func appendTimestampTZ(dst, text []byte) ([]byte, error) {
	local, utc := bytes.CutSuffix(text, []byte("+00"))
	if !utc || !isTimestamp(local) {
		return appendText(dst, text)
	}
	dst, err := appendTimestamp(dst, local)
	return append(dst[:len(dst)-1], `Z"`...), err
}

func appendHex(dst, text []byte) ([]byte, error) {
	digits, ok := bytes.CutPrefix(text, []byte(`\x`))
	if !ok {
		return dst, fmt.Errorf("%q is not a bytea in hexadecimal form", text)
	}
	return hex.AppendDecode(dst, digits)
}

func appendBytea(dst, text []byte) ([]byte, error) {
	raw, err := appendHex(nil, text)
	if err != nil {
		return dst, err
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, raw)
	return append(dst, '"'), nil
}

var errNotUTF8 = errors.New("the text is not valid UTF-8")

// appendText appends a string. Invalid UTF-8 is replaced and reported.
func appendText(dst, text []byte) ([]byte, error) {
	dst = AppendString(dst, text)
	if !utf8.Valid(text) {
		return dst, errNotUTF8
	}
	return dst, nil
}

const hexDigits = "0123456789abcdef"

// AppendString appends text as a string of JSON. It replaces invalid UTF-8 by U+FFFD.
func AppendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, text[start:i]...), `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, text[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, text[start:]...), '"')
}
