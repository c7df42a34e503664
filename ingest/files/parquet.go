package files

import (
	"context"
	"errors"

	"docstore/ingest/parquet"
	"docstore/ingest/records"
)

// parquetRows reads the rows of a Parquet file as records. The offset of a record is
// approximate: its number is its place.
type parquetRows struct{ *parquet.Reader }

// openParquet opens a Parquet file behind the row of the cursor. The row is identified by its
// number, and the file by its footer: the JSON of a row depends on the columns that are read.
func (r *fileReader) openParquet(ctx context.Context, options Options) error {
	in := r.in
	file, err := in.readerAt(ctx)
	if err != nil {
		return err
	}
	r.file = file
	rows, err := parquet.Open(file, in.size, parquet.Options{MaxBytes: options.ParquetBytes, Columns: options.Columns})
	if err == nil {
		r.stream = &records.Stream{Reader: parquetRows{rows}, Format: Parquet}
		r.tail.Bytes, r.tail.CRC = rows.Footer()
		err = in.skip.cannotContinue(skipRows(rows, in.skip, r.tail))
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return nil
}

// skipRows skips the rows up to the cursor of a file with the same footer.
func skipRows(rows *parquet.Reader, at *cursor, footer sample) error {
	if at == nil {
		return nil
	}
	if at.Tail != footer || at.Lines < 1 || at.Lines > rows.NumRows() {
		return errChanged
	}
	return rows.Skip(at.Lines)
}

// Next implements records.Reader.
func (p parquetRows) Next() (records.Record, error) {
	text, err := p.Reader.Next()
	var problem *parquet.RowError
	if err != nil && !errors.As(err, &problem) {
		return records.Record{}, err
	}
	row, _ := p.Row()
	record := records.Record{Number: row, End: p.Offset(), Newline: true}
	if problem != nil {
		record.Problem = problem
	} else {
		record.Text = text
	}
	return record, nil
}

// Waiting implements records.Reader.
func (p parquetRows) Waiting() bool { return true }
