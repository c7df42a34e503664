package pgjson

import (
	"bytes"
	"errors"
)

// maxDimensions is PostgreSQL's limit.
const maxDimensions = 6

var errArray = errors.New("the value is not an array in PostgreSQL's text form")

// appendArray converts the text form of an array, such as {1,NULL} or [2:3]={"a b",c}.
func (t *Type) appendArray(dst, text []byte) ([]byte, error) {
	if len(text) > 0 && text[0] == '[' { // bounds other than 1
		at := bytes.IndexByte(text, '=')
		if at < 0 {
			return dst, errArray
		}
		text = text[at+1:]
	}
	p := arrayParser{array: t, rest: text}
	dst, err := p.appendBraces(dst, maxDimensions)
	if err == nil && len(p.rest) > 0 {
		err = errArray
	}
	return dst, err
}

// arrayParser converts the elements of an array.
type arrayParser struct {
	array   *Type
	rest    []byte
	element []byte // unescaped
}

// skip skips c, if it is next.
func (p *arrayParser) skip(c byte) bool {
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *arrayParser) appendBraces(dst []byte, dimensions int) ([]byte, error) {
	if dimensions == 0 || !p.skip('{') {
		return dst, errArray
	}
	dst = append(dst, '[')
	if p.skip('}') {
		return append(dst, ']'), nil
	}
	for {
		var err error
		if len(p.rest) > 0 && p.rest[0] == '{' {
			dst, err = p.appendBraces(dst, dimensions-1)
		} else {
			dst, err = p.appendElement(dst)
		}
		switch {
		case err != nil:
			return dst, err
		case p.skip('}'):
			return append(dst, ']'), nil
		case !p.skip(p.array.delimiter):
			return dst, errArray
		}
		dst = append(dst, ',')
	}
}

func (p *arrayParser) appendElement(dst []byte) ([]byte, error) {
	if p.skip('"') {
		if !p.unquote() {
			return dst, errArray
		}
		return p.array.element.Append(dst, p.element)
	}
	end := bytes.IndexByte(p.rest, '}')
	if end < 0 {
		return dst, errArray
	}
	if before := bytes.IndexByte(p.rest[:end], p.array.delimiter); before >= 0 {
		end = before
	}
	text := p.rest[:end]
	p.rest = p.rest[end:]
	if string(text) == "NULL" {
		return append(dst, "null"...), nil
	}
	if len(text) == 0 || bytes.IndexByte(text, '\\') >= 0 {
		return dst, errArray // PostgreSQL quotes it
	}
	return p.array.element.Append(dst, text)
}

// unquote reads a quoted element up to its closing quote into p.element.
func (p *arrayParser) unquote() bool {
	p.element = p.element[:0]
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return true
		case c == '\\' && i+1 < len(p.rest):
			i++
			p.element = append(p.element, p.rest[i])
		default:
			p.element = append(p.element, c)
		}
	}
	return false
}
