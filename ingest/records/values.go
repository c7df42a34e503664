package records

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"

	"docstore/internal/eof"
)

// values reads JSON values as records: the elements of one array, or objects that follow each
// other, with any white space between and within them. It finds the ends of values by their quotes
// and brackets, and does not validate their other parts.
type values struct {
	in      *bufio.Reader
	limit   int
	inArray bool  // known behind the first byte
	begun   bool  // the first byte was found
	found   bool  // the next byte begins a value
	number  int64 // of the last value
	line    int64 // of the next byte
	end     int64 // offset of the next byte
	text    []byte
	failed  error // of all further calls
}

func newValues(in *bufio.Reader, limit int) *values { return &values{in: in, limit: limit, line: 1} }

func (v *values) Next() (Record, error) {
	if err := v.find(); err != nil {
		return Record{}, err
	}
	record := Record{Number: v.number + 1, Line: v.line, Newline: true}
	text, err := v.read()
	if err != nil {
		v.failed = err
		return Record{}, err
	}
	v.number, v.found, record.End = record.Number, false, v.end
	if record.Text = text; text == nil {
		record.Problem = tooLong(v.limit)
	}
	return record, nil
}

// find moves to the next value.
func (v *values) find() error {
	if v.failed == nil && !v.found {
		v.failed = v.tryFind()
		v.found = v.failed == nil
	}
	return v.failed
}

func (v *values) tryFind() error {
	c, err := v.next()
	if err == nil && !v.begun {
		v.begun, v.inArray = true, c == '['
		if v.inArray {
			v.skip()
			c, err = v.next()
		}
	}
	switch {
	case eof.Is(err) && v.inArray:
		return v.fail("the stream ends within the array")
	case err != nil:
		return err
	case !v.inArray && c != '{':
		return v.fail("%q where { should be", c)
	case !v.inArray:
		return nil
	case c == ']':
		v.skip()
		return v.requireEnd()
	case v.number > 0 && c != ',':
		return v.fail("%q where a comma or ] should be", c)
	case v.number > 0:
		v.skip()
		if c, err = v.next(); eof.Is(err) {
			return v.fail("the stream ends within the array")
		}
	}
	if err == nil && bytes.IndexByte([]byte("]},:"), c) >= 0 {
		return v.fail("%q where a value should be", c)
	}
	return err
}

// requireEnd returns io.EOF if only white space follows.
func (v *values) requireEnd() error {
	_, err := v.next()
	if err == nil {
		return v.fail("unexpected data after the array, at byte %d", v.end)
	}
	return err
}

// next returns the next byte that is not white space, and moves to it.
func (v *values) next() (byte, error) {
	for {
		b, err := v.in.Peek(1)
		if err != nil {
			return 0, err
		}
		if !isBlank(b[0]) {
			return b[0], nil
		}
		v.skip()
	}
}

// skip moves behind the next byte, which is buffered.
func (v *values) skip() {
	if c, _ := v.in.ReadByte(); c == '\n' {
		v.line++
	}
	v.end++
}

func (v *values) fail(format string, args ...any) error {
	return &LineError{v.line, fmt.Errorf("behind document %d: %w", v.number, fmt.Errorf(format, args...))}
}

// read returns the text of a value, nil if it is over the limit.
func (v *values) read() ([]byte, error) {
	first, start := v.line, v.end
	v.text = v.text[:0]
	for e := (extent{}); ; {
		if _, err := v.in.Peek(1); eof.Is(err) {
			return nil, &LineError{first, fmt.Errorf("the stream ends within document %d, which begins here", v.number+1)}
		} else if err != nil {
			return nil, err
		}
		part, _ := v.in.Peek(v.in.Buffered()) // within the buffer: no error
		n, done, err := e.scan(part)
		part = part[:n]
		v.end += int64(n)
		v.line += int64(bytes.Count(part, newline))
		_, _ = v.in.Discard(n) // they are buffered
		length := v.end - start
		switch {
		case err != nil:
			return nil, v.fail("%w", err)
		case length > maxAhead(v.limit):
			return nil, &LineError{first, errEndless}
		case done && length > int64(v.limit):
			return nil, nil
		case done && len(v.text) == 0:
			return part, nil
		case length <= int64(v.limit):
			v.text = append(v.text, part...)
		}
		if done {
			return v.text, nil
		}
	}
}

var newline = []byte("\n")

// Waiting reports whether a whole value is in memory, so that Next does not block.
func (v *values) Waiting() bool {
	part, _ := v.in.Peek(v.in.Buffered()) // within the buffer: no error
	part = bytes.TrimLeft(part, ", \t\r\n")
	_, done, _ := new(extent).scan(part)
	return done
}

// AtEnd reports whether only white space follows, behind an array that is complete.
func (v *values) AtEnd() bool { return eof.Is(v.find()) }

// extent finds the end of a JSON value.
type extent struct {
	open    []byte // brackets that are not closed
	begun   bool
	quoted  bool // within a string
	escaped bool // behind a backslash
}

var (
	errOpenString = errors.New("a string does not end in its line")
	errBracket    = errors.New("a bracket closes one of the other kind")
)

// scan returns the number of bytes that belong to the value, and whether it ends there. The next
// text continues this one. A number or literal ends before a byte that cannot belong to it.
func (e *extent) scan(text []byte) (n int, done bool, err error) {
	for n < len(text) {
		if e.quoted {
			n = e.string(text, n)
			switch {
			case e.quoted && n < len(text):
				return n, false, errOpenString
			case !e.quoted && len(e.open) == 0:
				return n, true, nil
			}
			continue
		}
		c := text[n]
		if e.begun && len(e.open) == 0 && (c == ',' || c == '"' || isBlank(c) || isBracket(c)) {
			return n, true, nil
		}
		switch c {
		case '"':
			e.quoted = true
		case '{', '[':
			if len(e.open) == maxDepth {
				return n, false, errDepth
			}
			e.open = append(e.open, c)
		case '}', ']':
			if len(e.open) == 0 || e.open[len(e.open)-1] != c-('}'-'{') {
				return n, false, errBracket
			}
			e.open = e.open[:len(e.open)-1]
			if len(e.open) == 0 {
				return n + 1, true, nil
			}
		}
		e.begun = true
		n++
	}
	return n, false, nil
}

func isBracket(c byte) bool { return c == '{' || c == '}' || c == '[' || c == ']' }

// string returns the offset behind a string, or of a line break in it, or the length of the text.
func (e *extent) string(text []byte, at int) int {
	for at < len(text) {
		if e.escaped {
			e.escaped = false
			at++
			continue
		}
		if at = PlainEnd(text, at); at == len(text) {
			break
		}
		switch text[at] {
		case '"':
			e.quoted = false
			return at + 1
		case '\n':
			return at
		}
		e.escaped = text[at] == '\\'
		at++
	}
	return at
}

// isSequence reports whether a stream that begins with these bytes is one of JSON objects that are
// not lines: the first object has several lines, or another one follows it in its line.
func isSequence(head []byte) bool {
	if len(head) == 0 || head[0] != '{' {
		return false
	}
	s := scanner{data: head}
	if err := s.object(nil); err != nil {
		return s.at == len(head) && bytes.IndexByte(head, '\n') >= 0 // valid so far
	}
	rest := bytes.TrimLeft(head[s.at:], " \t\r")
	return bytes.IndexByte(head[:s.at], '\n') >= 0 || len(rest) > 0 && rest[0] == '{'
}
