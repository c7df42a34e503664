package parquetjson

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
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

	pages  parquet.Pages
	page   parquet.Page        // of the values in next; nil: none
	values parquet.ValueReader // the rest of the page; nil: it is in next
	buffer []parquet.Value
	next   []parquet.Value // of buffer
}

// start starts to read a column chunk.
func (c *column) start(chunk parquet.ColumnChunk) {
	c.pages, c.page, c.values, c.next = chunk.Pages(), nil, nil, nil
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
			if errors.Is(err, io.EOF) {
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
	for {
		if c.values == nil {
			if keep == 0 && c.page != nil {
				parquet.Release(c.page) // else the kept values refer to its memory
			}
			c.page = nil
			page, err := c.pages.ReadPage()
			if err != nil {
				return err
			}
			c.page, c.values = page, page.Values()
		}
		if keep == len(c.buffer) {
			c.buffer = make([]parquet.Value, 2*keep)
		}
		copy(c.buffer, c.next[len(c.next)-keep:])
		n, err := c.values.ReadValues(c.buffer[keep:])
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil || n == 0 {
			c.values = nil
		}
		c.next = c.buffer[:keep+n]
		if n > 0 {
			return nil
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
	err := c.fill(0)
	if len(c.next) > 0 || err == nil {
		err = fmt.Errorf("it has values behind the last row: %w", parquet.ErrCorrupted)
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, c.pages.Close())
}
