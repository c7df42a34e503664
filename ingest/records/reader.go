package records

import (
	"errors"
	"fmt"
	"io"
)

// Record is one record of a stream.
type Record struct {
	Number  int64  // of the line or the JSON value, from 1
	Line    int64  // in which the JSON value begins; 0: Number is the line
	End     int64  // offset of the byte after it in the (decompressed) stream
	Text    []byte // JSON; valid until the next call of Next or AtEnd
	Newline bool   // it is a line that ends with a newline
	Problem error  // why there is no Text; the next record can be read
}

// Reader reads the records of a stream.
type Reader interface {
	// Next returns the next record, io.EOF at the end. After any other error the stream
	// cannot be read further.
	Next() (Record, error)
	// Waiting reports whether a whole record may be in memory, so that Next probably does
	// not block.
	Waiting() bool
	// AtEnd reports whether the stream has ended; it may block and read ahead.
	AtEnd() bool
}

// sticky repeats the first error of a reader. A buffered reader returns an error once: behind one
// that a look ahead has met, a damaged or broken stream could otherwise seem to end.
type sticky struct {
	in  io.Reader
	err error
}

func (s *sticky) Read(p []byte) (n int, err error) {
	if s.err == nil {
		n, s.err = s.in.Read(p)
	}
	return n, s.err
}

// tooLong is the problem of a record over the limit.
func tooLong(limit int) error {
	return fmt.Errorf("the record is longer than the limit of %d bytes", limit)
}

// LineError is an error at a line of a stream, behind which it cannot be read.
type LineError struct {
	Line int64 // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

var errEndless = errors.New("a record does not end: is a quote missing")

// maxAhead bounds the bytes that are read to find the end of a record over the limit.
func maxAhead(limit int) int64 { return aheadFactor*int64(limit) + readBufferBytes }

// aheadFactor: package csv doubles its buffer to hold a record, and then fills it.
const aheadFactor = 4
