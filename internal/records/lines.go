package ndjson

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const readBufferBytes = 256 << 10

// Line is one line of a stream.
type Line struct {
	Number  int64  // from 1
	End     int64  // offset of the byte behind it in the stream
	Text    []byte // without its newline; valid until the next call of Next
	Newline bool   // it ends with one, and not with the stream
	TooLong bool   // it is over the reader's limit; Text is nil
}

// Reader splits a stream into lines. A line over the limit takes no more memory
// than one within it.
type Reader struct {
	in     *bufio.Reader
	limit  int
	number int64
	end    int64
	long   []byte // a line that is longer than the buffer
}

// NewReader reads lines of up to limit bytes. Its first line begins at the given
// offset of the stream and follows as many lines as number says.
func NewReader(r io.Reader, limit int, offset, number int64) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, readBufferBytes), limit: limit, number: number, end: offset}
}

// Next returns the next line that is not blank; io.EOF when there is none. The
// last line of a stream need not end with a newline.
func (r *Reader) Next() (Line, error) {
	for {
		line, err := r.readLine()
		if err != nil || line.TooLong || len(bytes.TrimLeft(line.Text, " \t\r")) > 0 {
			return line, err
		}
	}
}

// Waiting tells whether a whole line is in memory already, so that Next will
// not wait for the stream.
func (r *Reader) Waiting() bool {
	buffered, _ := r.in.Peek(r.in.Buffered()) // no more than there is: no error
	return bytes.IndexByte(buffered, '\n') >= 0
}

// AtEnd tells whether the stream has ended; it waits for the stream to tell.
func (r *Reader) AtEnd() bool {
	_, err := r.in.Peek(1)
	return errors.Is(err, io.EOF)
}

// readLine reads up to the next newline or the end of the stream.
func (r *Reader) readLine() (Line, error) {
	text, err := r.in.ReadSlice('\n')
	r.end += int64(len(text))
	tooLong := false
	if errors.Is(err, bufio.ErrBufferFull) {
		text, tooLong, err = r.readLong(text)
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(text) == 0) {
		return Line{}, err
	}
	r.number++
	line := Line{Number: r.number, End: r.end, Newline: err == nil}
	text = bytes.TrimSuffix(text, []byte("\n"))
	if line.TooLong = tooLong || len(text) > r.limit; !line.TooLong {
		line.Text = text
	}
	return line, nil
}

// readLong gathers the rest of a line that does not fit into the buffer, but
// keeps no more of it than the limit and a newline.
func (r *Reader) readLong(start []byte) (text []byte, tooLong bool, err error) {
	r.long = append(r.long[:0], start...)
	for {
		var part []byte
		part, err = r.in.ReadSlice('\n')
		r.end += int64(len(part))
		if len(r.long)+len(part) > r.limit+1 {
			tooLong = true
		}
		if !tooLong {
			r.long = append(r.long, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return r.long, tooLong, err
		}
	}
}
