package records

import (
	"fmt"
)

// Record is one record of a stream.
type Record struct {
	Number  int64  // of its line, or of the element of an array; from 1
	End     int64  // offset of the byte behind it in the (decompressed) stream
	Text    []byte // JSON; valid until the next call of Next or AtEnd
	Newline bool   // it is a line that ends with a newline, and not with the stream
	Problem error  // why there is no Text, although the stream goes on
}

// Reader reads the records of a stream.
type Reader interface {
	// Next returns the next record; io.EOF when there is none. After any other
	// error the stream cannot be read further.
	Next() (Record, error)
	// Waiting tells whether a whole record may be in memory already, so that Next
	// will hardly wait for the stream.
	Waiting() bool
	// AtEnd tells whether the stream has ended; it waits for the stream to tell,
	// and may read on for that.
	AtEnd() bool
}

// tooLong is the problem of a record over a reader's limit.
func tooLong(limit int) error {
	return fmt.Errorf("it has over %d bytes, the limit", limit)
}
