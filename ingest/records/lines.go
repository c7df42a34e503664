package records

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"docstore/internal/eof"
)

const readBufferBytes = 256 << 10

var byteOrderMark = []byte("\ufeff")

// buffered returns a reader that repeats the first error of r.
func buffered(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(&sticky{in: r}, readBufferBytes) }

// Lines splits a stream into lines. A line over the limit takes no more memory than one
// within it.
type Lines struct {
	in     *bufio.Reader
	limit  int
	number int64
	end    int64
	long   []byte // a line that is longer than the buffer
}

// NewLines reads lines of up to limit bytes. The first line begins at the given offset of
// the stream, after number lines.
func NewLines(r io.Reader, limit int, offset, number int64) *Lines {
	return &Lines{in: buffered(r), limit: limit, number: number, end: offset}
}

// Next returns the next line that is not blank, io.EOF at the end. The last line of a
// stream need not end with a newline.
func (l *Lines) Next() (Record, error) {
	for {
		line, err := l.readLine()
		if err != nil || line.Problem != nil || !isBlankLine(line.Text) {
			return line, err
		}
	}
}

func isBlankLine(text []byte) bool {
	for _, c := range text {
		if !isBlank(c) {
			return false
		}
	}
	return true
}

// Waiting reports whether a whole line is in memory, so that Next does not block.
func (l *Lines) Waiting() bool {
	buffered, _ := l.in.Peek(l.in.Buffered()) // within the buffer: no error
	return bytes.IndexByte(buffered, '\n') >= 0
}

// AtEnd reports whether the stream has ended; it may block.
func (l *Lines) AtEnd() bool {
	_, err := l.in.Peek(1)
	return eof.Is(err)
}

// readLine reads up to the next newline or the end of the stream.
func (l *Lines) readLine() (Record, error) {
	text, err := l.in.ReadSlice('\n')
	l.end += int64(len(text))
	over := false
	if errors.Is(err, bufio.ErrBufferFull) {
		text, over, err = l.readLong(text)
	}
	if err != nil && (!eof.Is(err) || len(text) == 0) {
		return Record{}, err
	}
	l.number++
	line := Record{Number: l.number, End: l.end, Newline: err == nil}
	text = bytes.TrimSuffix(text, []byte("\n"))
	if l.number == 1 {
		text = bytes.TrimPrefix(text, byteOrderMark) // some editors write one
	}
	if over || len(text) > l.limit {
		line.Problem = tooLong(l.limit)
	} else {
		line.Text = text
	}
	return line, nil
}

// readLong reads the rest of a line that does not fit into the buffer. It keeps at most the
// limit and a newline.
func (l *Lines) readLong(start []byte) (text []byte, over bool, err error) {
	l.long = append(l.long[:0], start...)
	for {
		var part []byte
		part, err = l.in.ReadSlice('\n')
		l.end += int64(len(part))
		if len(l.long)+len(part) > l.limit+1 {
			over = true
		}
		if !over {
			l.long = append(l.long, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l.long, over, err
		}
	}
}
