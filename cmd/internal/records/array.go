package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// array reads the elements of a JSON array as records.
type array struct {
	ahead   *limiter
	decoder *json.Decoder
	limit   int
	number  int64
	opened  bool
	element json.RawMessage
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
	if !a.decoder.More() {
		return Record{}, a.close()
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
	case errors.Is(err, io.EOF):
		return io.EOF // only white space: no records
	case err != nil:
		return describe(err)
	case first != json.Delim('['):
		return fmt.Errorf("a JSON array must begin with [, not with %v", first)
	}
	a.opened = true
	return nil
}

// close reads the rest after the last element. It returns io.EOF if that is valid.
func (a *array) close() error {
	if _, err := a.decoder.Token(); err != nil {
		return fmt.Errorf("behind element %d: %w", a.number, describe(err))
	}
	if _, err := a.decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("unexpected data after the array, at byte %d", a.decoder.InputOffset())
	}
	return io.EOF
}

// describe explains an early end of the stream.
func describe(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the stream ends within the array")
	}
	return err
}

// Waiting returns false: the decoder does not report its state.
func (a *array) Waiting() bool { return false }

func (a *array) AtEnd() bool { return !a.decoder.More() }
