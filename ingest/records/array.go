package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"docstore/internal/eof"
)

// array reads the elements of a JSON array as records.
type array struct {
	ahead   *limiter
	decoder *json.Decoder
	limit   int
	number  int64
	opened  bool
	element json.RawMessage
	end     error // of the part behind the last element, once it was read; io.EOF: it is valid
}

func newArray(in io.Reader, limit int) *array {
	ahead := &limiter{in: in, limit: limit}
	return &array{ahead: ahead, decoder: json.NewDecoder(ahead), limit: limit}
}

func (a *array) Next() (Record, error) {
	if !a.opened {
		if err := a.open(); err != nil {
			return Record{}, err
		}
	}
	if a.ended() {
		return Record{}, a.end
	}
	a.number++
	a.element = a.element[:0]
	if err := a.decoder.Decode(&a.element); err != nil {
		return Record{}, fmt.Errorf("element %d: %w", a.number, describe(err))
	}
	record := Record{Number: a.number, End: a.decoder.InputOffset(), Newline: true}
	a.ahead.taken = record.End
	if len(a.element) > a.limit {
		record.Problem = tooLong(a.limit)
	} else {
		record.Text = a.element
	}
	return record, nil
}

func (a *array) open() error {
	first, err := a.decoder.Token()
	switch {
	case eof.Is(err):
		return io.EOF // only white space: no records
	case err != nil:
		return describe(err)
	case first != json.Delim('['):
		return fmt.Errorf("a JSON array must begin with [, not with %v", first)
	}
	a.opened = true
	return nil
}

// ended reports whether no element follows, and then sets end.
func (a *array) ended() bool {
	if a.end == nil && !a.decoder.More() {
		a.end = a.close()
	}
	return a.end != nil
}

// close reads the rest after the last element. It returns io.EOF if that is valid.
func (a *array) close() error {
	if _, err := a.decoder.Token(); err != nil {
		return fmt.Errorf("behind element %d: %w", a.number, describe(err))
	}
	_, err := a.decoder.Token()
	var syntax *json.SyntaxError
	switch {
	case eof.Is(err):
		return io.EOF
	case err == nil, errors.As(err, &syntax):
		return fmt.Errorf("unexpected data after the array, at byte %d", a.decoder.InputOffset())
	}
	return fmt.Errorf("behind the array: %w", err)
}

// describe explains an early end of the stream.
func describe(err error) error {
	if eof.Unexpected(err) == io.ErrUnexpectedEOF { //nolint:errorlint // one that is wrapped has another reason
		return errors.New("the stream ends within the array")
	}
	return err
}

// Waiting returns false: the decoder does not report its state.
func (a *array) Waiting() bool { return false }

// AtEnd reports whether the array is complete and nothing follows it.
func (a *array) AtEnd() bool { return a.ended() && eof.Is(a.end) }
