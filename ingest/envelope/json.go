package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// field is a field of a JSON object. The value is valid JSON without surrounding blanks.
type field struct {
	name  string
	value []byte
}

// parse validates a JSON text and returns it without surrounding blanks. A nil or empty text
// is an error. part is the part of the message.
func (d *Decoder) parse(part string, text []byte) ([]byte, error) {
	if len(text) == 0 {
		return nil, fmt.Errorf("the message has no %s", part)
	}
	if !d.valid(text) {
		return nil, notJSON(part, text)
	}
	return bytes.Trim(text, blanks), nil
}

func (d *Decoder) parseObject(part string, text []byte) (map[string][]byte, error) {
	value, err := d.parse(part, text)
	if err != nil {
		return nil, err
	}
	return objectOf(part, value)
}

// objectOf returns the fields of a valid object by name. The last one of equal names counts.
func objectOf(part string, value []byte) (map[string][]byte, error) {
	if !isObject(value) {
		return nil, fmt.Errorf("the %s is not a JSON object", part)
	}
	fields := make(map[string][]byte)
	for _, f := range fieldsOf(value) {
		fields[f.name] = f.value
	}
	return fields, nil
}

func isObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

func isNull(value []byte) bool { return string(value) == "null" }

// find returns the value of the last field of a name.
func find(fields []field, name string) ([]byte, bool) {
	for i := len(fields) - 1; i >= 0; i-- {
		if fields[i].name == name {
			return fields[i].value, true
		}
	}
	return nil, false
}

// textOf returns the string that is the value of a field.
func textOf(name string, value []byte) (string, error) {
	if len(value) == 0 || value[0] != '"' {
		return "", fmt.Errorf("the field %q is not a string", name)
	}
	return unquote(value), nil
}

// unquote decodes a valid JSON string.
func unquote(value []byte) string {
	if bytes.IndexByte(value, '\\') < 0 && isASCII(value) {
		return string(value[1 : len(value)-1])
	}
	var s string
	_ = json.Unmarshal(value, &s) // it is valid
	return s
}

func isASCII(text []byte) bool {
	for _, b := range text {
		if b >= 0x80 {
			return false
		}
	}
	return true
}

// idOf returns the id of the key columns of a row.
func idOf(columns []field) ([]byte, error) {
	if len(columns) == 0 {
		return nil, errors.New("the key has no columns")
	}
	id := []byte{'['}
	for i, column := range columns {
		switch c := column.value[0]; {
		case c == '"' && len(columns) == 1:
			text := unquote(column.value)
			if text == "" {
				return nil, errors.New("the key is empty")
			}
			return []byte(text), nil
		case c == '"', c == 't', c == 'f', isInteger(column.value):
		default:
			return nil, fmt.Errorf("the key column %q is neither a string nor an integer: %.80s", column.name, column.value)
		}
		if len(columns) == 1 {
			return column.value, nil
		}
		if i > 0 {
			id = append(id, ',')
		}
		id = appendValue(id, column.value)
	}
	return append(id, ']'), nil
}

// appendValue appends a value in a form that does not depend on the producer's escapes.
func appendValue(dst, value []byte) []byte {
	if value[0] != '"' {
		return append(dst, value...)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(unquote(value)) // a string is always encoded
	return append(dst, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}

// isInteger reports whether a valid value is an integer without fraction and exponent.
func isInteger(value []byte) bool {
	if value[0] == '-' {
		value = value[1:]
	}
	for _, b := range value {
		if b < '0' || b > '9' {
			return false
		}
	}
	return true
}

const blanks = " \t\r\n"

// fieldsOf returns the fields of a valid object in their order.
func fieldsOf(object []byte) []field {
	fields := make([]field, 0, 8)
	for at := skipBlanks(object, 1); object[at] != '}'; {
		end := stringEnd(object, at)
		name := unquote(object[at:end])
		at = skipBlanks(object, skipBlanks(object, end)+1) // the colon
		end = valueEnd(object, at)
		fields = append(fields, field{name: name, value: object[at:end]})
		if at = skipBlanks(object, end); object[at] == ',' {
			at = skipBlanks(object, at+1)
		}
	}
	return fields
}

func skipBlanks(text []byte, at int) int {
	for text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n' {
		at++
	}
	return at
}

// stringEnd returns the end of the valid string that starts at an offset.
func stringEnd(text []byte, at int) int {
	for at++; ; at++ {
		n := bytes.IndexByte(text[at:], '"')
		at += n
		escapes := 0
		for text[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
}

// valueEnd returns the end of the valid value that starts at an offset inside an object.
func valueEnd(text []byte, at int) int {
	for depth := 0; ; {
		switch text[at] {
		case '"':
			at = stringEnd(text, at)
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at // of the object around a number
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return at
			}
		}
		at++
	}
}
