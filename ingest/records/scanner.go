package records

import (
	"errors"
	"fmt"
)

// maxDepth is the maximum nesting of arrays and objects, as in encoding/json.
const maxDepth = 10_000

// scanner validates JSON from left to right. It accepts the same texts as json.Valid:
// strings need not be UTF-8.
type scanner struct {
	data  []byte
	at    int // the next byte
	depth int
}

var errDepth = errors.New("nested too deep")

// fail returns the error for the current byte, which is not valid JSON.
func (s *scanner) fail(want string) error {
	if s.at >= len(s.data) {
		return fmt.Errorf("it ends where %s should follow", want)
	}
	return fmt.Errorf("byte %d is %q where %s should be", s.at+1, s.data[s.at], want)
}

func (s *scanner) skipBlanks() {
	for s.at < len(s.data) && s.data[s.at] <= ' ' && isBlank(s.data[s.at]) {
		s.at++
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// accept consumes c if it is the next byte.
func (s *scanner) accept(c byte) bool {
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// object scans an object. If p is not nil, it passes the fields that p may want to p.
func (s *scanner) object(p *Parser) error {
	if s.depth++; s.depth > maxDepth {
		return errDepth
	}
	s.at++ // {
	s.skipBlanks()
	if s.accept('}') {
		s.depth--
		return nil
	}
	for {
		name, err := s.name()
		if err != nil {
			return err
		}
		start := s.at
		if err := s.value(); err != nil {
			return err
		}
		if p != nil && p.mayWant(name) {
			if err := p.take(name, s.data[start:s.at]); err != nil {
				return err
			}
		}
		s.skipBlanks()
		if s.accept(',') {
			s.skipBlanks()
			continue
		}
		if !s.accept('}') {
			return s.fail("a comma or }")
		}
		s.depth--
		return nil
	}
}

// name scans a field's name up to the start of its value.
func (s *scanner) name() ([]byte, error) {
	if s.at >= len(s.data) || s.data[s.at] != '"' {
		return nil, s.fail("a field's name")
	}
	start := s.at
	if err := s.string(); err != nil {
		return nil, err
	}
	name := s.data[start+1 : s.at-1]
	s.skipBlanks()
	if !s.accept(':') {
		return nil, s.fail("a colon")
	}
	s.skipBlanks()
	return name, nil
}

func (s *scanner) array() error {
	if s.depth++; s.depth > maxDepth {
		return errDepth
	}
	s.at++ // [
	s.skipBlanks()
	if s.accept(']') {
		s.depth--
		return nil
	}
	for {
		if err := s.value(); err != nil {
			return err
		}
		s.skipBlanks()
		if s.accept(',') {
			s.skipBlanks()
			continue
		}
		if !s.accept(']') {
			return s.fail("a comma or ]")
		}
		s.depth--
		return nil
	}
}

// value scans any value; white space before it has been skipped.
func (s *scanner) value() error {
	if s.at >= len(s.data) {
		return s.fail("a value")
	}
	switch c := s.data[s.at]; {
	case c == '"':
		return s.string()
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fail("a value")
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		if !s.accept(word[i]) {
			return s.fail(word)
		}
	}
	return nil
}

func (s *scanner) string() error {
	s.at = PlainEnd(s.data, s.at+1)
	if s.accept('"') {
		return nil
	}
	return s.restOfString()
}

// restOfString scans the rest of a string after its plain beginning.
func (s *scanner) restOfString() error {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case '"':
			s.at++
			return nil
		case '\\':
			if err := s.escape(); err != nil {
				return err
			}
		default:
			return s.fail("an escaped character")
		}
		s.at = PlainEnd(s.data, s.at)
	}
	return s.fail("the end of a string")
}

func (s *scanner) escape() error {
	s.at++ // the backslash
	if s.at >= len(s.data) {
		return s.fail("an escape")
	}
	switch s.data[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
		return nil
	case 'u':
		s.at++
		for range 4 {
			if s.at >= len(s.data) || !isHex(s.data[s.at]) {
				return s.fail("a hexadecimal digit")
			}
			s.at++
		}
		return nil
	}
	return s.fail("an escape")
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (s *scanner) number() error {
	s.accept('-')
	if !s.accept('0') {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.accept('.') {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.accept('e') || s.accept('E') {
		if !s.accept('+') {
			s.accept('-')
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() error {
	start := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	if s.at == start {
		return s.fail("a digit")
	}
	return nil
}
