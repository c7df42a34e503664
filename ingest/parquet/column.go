package parquet

import (
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go"

	"docstore/internal/eof"
)

const (
	// valuesAhead is the number of values of a column that are decoded together.
	valuesAhead = 128
	// maxRowValues bounds the values of a column in a row, of 24 bytes each. The JSON of more
	// would be larger than any document.
	maxRowValues = 8 << 20
)

// column reads the values of a leaf in a row group.
type column struct {
	leaf
	maxValues int // maxRowValues, except in tests

	pages  pages
	page   *page // nil: the first one was not read
	buffer []parquet.Value
	next   []parquet.Value // of buffer
}

// start starts to read a column chunk.
func (c *column) start(p pages) {
	c.pages, c.page, c.next = p, nil, nil
	if c.buffer == nil {
		c.buffer = make([]parquet.Value, valuesAhead)
	}
}

// row returns the values of the next row, valid until the next call. It returns io.EOF behind
// the last one. A RowError concerns only one row.
func (c *column) row() ([]parquet.Value, error) {
	if len(c.next) == 0 {
		if err := c.fill(0); err != nil {
			return nil, err
		}
	}
	n := 1
	if c.repeated {
		var err error
		if n, err = c.rowValues(); err != nil {
			return nil, err
		}
	}
	row := c.next[:n:n]
	c.next = c.next[n:]
	return row, nil
}

// rowValues reads ahead to the end of the row, and returns its number of values.
func (c *column) rowValues() (n int, err error) {
	if c.next[0].RepetitionLevel() != 0 {
		return 0, errLevels
	}
	tooMany := false
	for n = 1; ; n++ {
		if n == len(c.next) {
			if n > c.maxValues {
				tooMany, c.next, n = true, c.next[:0], 0
			}
			err := c.fill(len(c.next))
			if eof.Is(err) {
				break
			}
			if err != nil {
				return 0, err
			}
		}
		if c.next[n].RepetitionLevel() == 0 {
			break
		}
	}
	if tooMany || n > c.maxValues {
		c.next = c.next[n:]
		return 0, &RowError{c.name, fmt.Errorf("the row has more than %d values", c.maxValues)}
	}
	return n, nil
}

// fill reads values behind the last ones of next, which it keeps. It returns io.EOF behind the
// last value of the row group.
func (c *column) fill(keep int) error {
	if keep == len(c.buffer) {
		c.buffer = make([]parquet.Value, 2*keep)
	}
	copy(c.buffer, c.next[len(c.next)-keep:])
	for {
		if c.page != nil {
			n, err := c.page.fill(c.buffer[keep:])
			if err != nil {
				return fmt.Errorf("page %d: %w", c.pages.read-1, err)
			}
			c.next = c.buffer[:keep+n]
			if n > 0 {
				return nil
			}
		}
		var err error
		if c.page, err = c.pages.next(keep == 0); err != nil {
			return err
		}
	}
}

// skip skips rows.
func (c *column) skip(rows int64) error {
	for rows > 0 {
		if !c.repeated && len(c.next) > 0 {
			n := min(rows, int64(len(c.next)))
			c.next, rows = c.next[n:], rows-n
			continue
		}
		var bad *RowError
		if _, err := c.row(); err != nil && !errors.As(err, &bad) {
			return err
		}
		rows--
	}
	return nil
}

// close ends reading a row group. It reports values behind its last row.
func (c *column) close() error {
	if len(c.next) == 0 {
		if err := c.fill(0); err != nil {
			return ignoreEnd(err)
		}
	}
	return fmt.Errorf("it has values behind the last row: %w", parquet.ErrCorrupted)
}

func ignoreEnd(err error) error {
	if eof.Is(err) {
		return nil
	}
	return err
}
