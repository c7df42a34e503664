package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"docstore/internal/eof"
)

// integer matches a JSON number that is an id, as written.
var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// ParseIDs returns the ids of a body: the elements of a JSON array, or the values of
// non-empty lines. An id is a string, an integer, or an object with "id" or "id_base64".
// Its length is not checked. Errors are *Error: CodeTooLarge for more than most ids,
// otherwise CodeInvalidArgument with the place.
func ParseIDs(body []byte, most int) ([]string, error) {
	if !utf8.Valid(body) {
		return nil, Errorf(CodeInvalidArgument, `the body is not UTF-8; write such an id as {"id_base64":"..."}`)
	}
	l := idList{most: most}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := l.array(trimmed); err != nil {
			return nil, err
		}
		return l.ids, nil
	}
	number := 0
	for line := range bytes.Lines(body) {
		number++
		if line = bytes.Trim(line, " \t\r\n"); len(line) == 0 {
			continue
		}
		if err := l.add(line, "line", number); err != nil {
			return nil, err
		}
	}
	return l.ids, nil
}

// idList collects ids.
type idList struct {
	ids  []string
	most int
}

// array adds the elements of a JSON array.
func (l *idList) array(body []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if _, err := decoder.Token(); err != nil {
		return Errorf(CodeInvalidArgument, "the array of ids: %v", err)
	}
	for number := 1; decoder.More(); number++ {
		var element json.RawMessage
		if err := decoder.Decode(&element); err != nil {
			return Errorf(CodeInvalidArgument, "id %d: %v", number, err)
		}
		if err := l.add(element, "id", number); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return Errorf(CodeInvalidArgument, "the array of ids has no end: %v", err)
	}
	if _, err := decoder.Token(); !eof.Is(err) {
		return Errorf(CodeInvalidArgument, "bytes follow the array of ids")
	}
	return nil
}

// add adds the id at a place.
func (l *idList) add(value []byte, place string, number int) error {
	if len(l.ids) == l.most {
		return Errorf(CodeTooLarge, "more than %d ids; send several requests", l.most)
	}
	id, err := parseID(value)
	if err != nil {
		return Errorf(CodeInvalidArgument, "%s %d: %v", place, number, err)
	}
	l.ids = append(l.ids, id)
	return nil
}

// shownValueBytes is the length to which an error quotes a value.
const shownValueBytes = 60

// parseID returns the id of a JSON value.
func parseID(value []byte) (string, error) {
	switch {
	case value[0] == '"':
		var id string
		if err := json.Unmarshal(value, &id); err != nil {
			return "", err
		}
		return id, checkSurrogates(value)
	case value[0] == '{':
		return parseObject(value)
	case integer.Match(value):
		return string(value), nil
	}
	return "", fmt.Errorf(`%.*q: want a string, an integer, or {"id":"..."}`, shownValueBytes, value)
}

func parseObject(value []byte) (string, error) {
	var object struct {
		ID     *json.RawMessage `json:"id"`
		Base64 *[]byte          `json:"id_base64"`
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&object); err != nil {
		return "", err
	}
	if _, err := decoder.Token(); !eof.Is(err) {
		return "", errors.New("bytes follow the object")
	}
	switch {
	case (object.ID != nil) == (object.Base64 != nil):
		return "", errors.New(`want one of "id" and "id_base64"`)
	case object.Base64 != nil:
		return string(*object.Base64), nil
	case (*object.ID)[0] == '{':
		return "", errors.New(`"id" is an object`)
	}
	return parseID(*object.ID)
}

// checkSurrogates refuses an escape of half a surrogate pair in a JSON string, which
// package json would replace with U+FFFD: another id.
func checkSurrogates(quoted []byte) error {
	for i := 0; i+1 < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++
		if quoted[i] != 'u' {
			continue
		}
		unit, rest := hex4(quoted[i+1:]), quoted[i+5:]
		i += 4
		switch {
		case unit&^0x7ff != 0xd800:
		case unit < 0xdc00 && len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' && hex4(rest[2:])&^0x3ff == 0xdc00:
			i += 6
		default:
			return errors.New("half a surrogate pair is not a character")
		}
	}
	return nil
}

// hex4 returns the value of four hexadecimal digits, which package json has checked.
func hex4(b []byte) (value rune) {
	for _, digit := range b[:4] {
		switch {
		case digit <= '9':
			digit -= '0'
		default:
			digit = digit&^0x20 - 'A' + 10
		}
		value = value<<4 | rune(digit)
	}
	return value
}
