package records

import (
	"bufio"

	"docstore/internal/eof"
)

// lineEnds makes the carriage returns at the ends of rows newlines, which package csv needs, in a
// table whose first row ends with a carriage return alone. Other tables pass unchanged. It
// follows the quotes as package csv does: behind an invalid one it continues at the next line.
type lineEnds struct {
	in      *bufio.Reader
	comma   string // between cells
	style   lineStyle
	cell    cellState
	matched int // bytes of comma
}

type lineStyle int

const (
	unknownLines lineStyle = iota // within the first row
	newlines                      // also behind carriage returns
	returnsOnly                   // carriage returns
)

type cellState int

const (
	cellStart cellState = iota
	plainCell
	quotedCell
	quoteInCell // the quote ends the cell, or another one follows
	invalidLine // to its end
)

func (l *lineEnds) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	for i := 0; i < n && l.style != newlines; i++ {
		switch end := l.step(p[i]); {
		case !end:
		case l.style == unknownLines && (p[i] == '\n' || l.follows(p[i+1:n])):
			l.style = newlines
		case p[i] == '\r':
			l.style = returnsOnly
			p[i] = '\n'
		}
	}
	return n, err
}

// follows reports whether a newline follows a carriage return, at the start of the rest.
func (l *lineEnds) follows(rest []byte) bool {
	if len(rest) == 0 {
		var err error
		if rest, err = l.in.Peek(1); err != nil {
			return !eof.Is(err) // a newline may follow; the next read repeats the error
		}
	}
	return rest[0] == '\n'
}

// step moves behind a byte. It reports whether the byte ends a line.
func (l *lineEnds) step(c byte) (end bool) {
	separates := l.separates(c)
	switch {
	case l.cell == quotedCell:
		if c == '"' {
			l.cell = quoteInCell
		}
	case c == '\n' || c == '\r':
		l.cell = cellStart
		return true
	case l.cell == invalidLine:
	case c == '"' && (l.cell == cellStart || l.cell == quoteInCell):
		l.cell = quotedCell
	case separates:
		l.cell = cellStart
	case c == '"' || l.cell == quoteInCell && l.matched == 0:
		l.cell = invalidLine
	case l.cell == cellStart:
		l.cell = plainCell
	}
	return false
}

// separates reports whether a byte completes the separator of cells.
func (l *lineEnds) separates(c byte) bool {
	if c != l.comma[l.matched] {
		l.matched = 0
	}
	if c == l.comma[l.matched] {
		l.matched++
	}
	if l.matched < len(l.comma) {
		return false
	}
	l.matched = 0
	return true
}
