package parquet

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"docstore/internal/eof"
)

const (
	// DefaultMaxBytes is the default of Options.MaxBytes.
	DefaultMaxBytes = 512 << 20
	// MinMaxBytes is the minimum of Options.MaxBytes.
	MinMaxBytes = 1 << 20
	// maxColumns and maxRowGroups bound what the metadata describes.
	maxColumns   = 4096
	maxRowGroups = 32767
	// levelBytes is the memory of the levels of a value, lengthBytes that of its decoded number
	// or lengths in a delta encoding, and valueBytes that of a value of the dictionary; each
	// besides the bytes of the page.
	levelBytes  = 2
	lengthBytes = 16
	valueBytes  = 24
)

// Magic begins a Parquet file.
const Magic = "PAR1"

// Options configure a Reader.
type Options struct {
	MaxBytes int64 // memory of a row group; 0: DefaultMaxBytes
	// Columns reports whether a top-level column is read; nil: all are. The data of others is
	// neither read nor verified.
	Columns func(name string) bool
}

// Reader reads the rows of a file.
type Reader struct {
	options      Options
	in           *window
	file         *parquet.File
	footer       footer
	encoder      *encoder
	columns      []column // of the encoder's leaves
	decompressor decompressor

	group  int   // the last row group that was opened or skipped; -1: none
	open   bool  // it is being read
	first  int64 // number of rows before it
	behind int64 // number of rows before the next one
	skip   int64 // rows of the next group to skip
	read   int64 // rows of the file
	end    error // behind the last row, once it was determined; io.EOF: the file is valid
}

// Open reads the metadata of a file.
func Open(r io.ReaderAt, size int64, o Options) (_ *Reader, err error) {
	defer recovered(&err)
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Columns == nil {
		o.Columns = func(string) bool { return true }
	}
	end, err := readFooter(r, size)
	if err != nil {
		return nil, err
	}
	in := &window{r: r}
	in.hold(size-int64(len(end)), end)
	file, err := parquet.OpenFile(in, size, parquet.SkipMagicBytes(true), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("not a valid Parquet file: %w", err)
	}
	m := file.Metadata()
	if m.EncryptionAlgorithm.Value != nil {
		return nil, errors.New("the Parquet file is encrypted")
	}
	if n := len(m.RowGroups); n > maxRowGroups {
		return nil, fmt.Errorf("the file has %d row groups, more than %d", n, maxRowGroups)
	}
	leaves := countLeaves(file.Root())
	if leaves > maxColumns {
		return nil, fmt.Errorf("the file has more than %d columns", maxColumns)
	}
	var rows int64
	for i := range m.RowGroups {
		if n := m.RowGroups[i].NumRows; n < 0 || len(m.RowGroups[i].Columns) != leaves {
			return nil, fmt.Errorf("row group %d has %d rows and %d columns, the schema has %d columns: %w", i, n, len(m.RowGroups[i].Columns), leaves, parquet.ErrCorrupted)
		}
		rows += m.RowGroups[i].NumRows
	}
	if rows != m.NumRows {
		return nil, fmt.Errorf("the row groups have %d rows, the file has %d: %w", rows, m.NumRows, parquet.ErrCorrupted)
	}
	e, err := newEncoder(file.Root(), m.Schema, o.Columns)
	if err != nil {
		return nil, err
	}
	for i := range m.RowGroups {
		for _, l := range e.leaves {
			if err := l.checkChunk(&m.RowGroups[i].Columns[l.index], size-int64(len(end))); err != nil {
				return nil, fmt.Errorf("row group %d: column %s: %w", i, l.name, err)
			}
		}
	}
	reader := &Reader{options: o, in: in, file: file, footer: footerOf(end), encoder: e, group: -1}
	for _, one := range e.leaves {
		reader.columns = append(reader.columns, column{leaf: one, maxValues: maxRowValues})
	}
	return reader, nil
}

// countLeaves returns the number of leaves below a column.
func countLeaves(c *parquet.Column) (n int) {
	if c.Leaf() {
		return 1
	}
	for _, child := range c.Columns() {
		n += countLeaves(child)
	}
	return n
}

// recovered converts a panic of the decoder, which a damaged file may cause, to an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Parquet file is damaged: %v", p)
	}
}

// Footer returns the size of the footer in bytes, and its CRC-32C. The footer has the places
// and usually the statistics of all columns, so it differs from that of another file.
func (r *Reader) Footer() (bytes, crc uint32) { return r.footer.bytes, r.footer.crc }

// NumRows returns the number of rows of the file.
func (r *Reader) NumRows() int64 { return r.file.Metadata().NumRows }

// Row returns the number of rows before the next one, and the row group of the last one.
func (r *Reader) Row() (row int64, group int) { return r.read, max(r.group, 0) }

// Offset returns the approximate place in the file: it increases with every row.
func (r *Reader) Offset() int64 {
	groups := r.file.Metadata().RowGroups
	if r.group < 0 {
		return 0
	}
	if groups[r.group].NumRows == 0 {
		return 0
	}
	all := extent(&groups[r.group])
	return all.from + int64(float64(all.to-all.from)*float64(r.read-r.first)/float64(groups[r.group].NumRows))
}

// Skip skips rows, before the first call of Next.
func (r *Reader) Skip(rows int64) error {
	if rows < 0 || rows > r.NumRows() {
		return fmt.Errorf("row %d is not among the %d rows of the file", rows, r.NumRows())
	}
	r.read = rows
	groups := r.file.Metadata().RowGroups
	for r.group+1 < len(groups) && rows >= groups[r.group+1].NumRows {
		r.group++
		r.first, r.behind = r.behind, r.behind+groups[r.group].NumRows
		rows -= groups[r.group].NumRows
	}
	r.skip = rows
	return nil
}

// Next returns the next row, io.EOF behind the last one. A RowError concerns only one row. The
// text is valid until the next call.
func (r *Reader) Next() (text []byte, err error) {
	defer recovered(&err)
	if r.end != nil {
		return nil, r.end
	}
	for !r.open || r.read == r.behind {
		if err := r.nextGroup(); err != nil {
			return nil, err
		}
	}
	var problem *RowError
	for i := range r.columns {
		c := &r.columns[i]
		values, err := c.row()
		var bad *RowError
		switch {
		case errors.As(err, &bad):
			problem = bad
		case err != nil:
			return nil, r.failed(c, err)
		}
		r.encoder.columns[i] = values
	}
	r.read++
	if problem != nil {
		return nil, problem
	}
	return r.encoder.encode()
}

// AtEnd reports whether all rows were read, and the columns end behind them. It invalidates the
// text of the last row.
func (r *Reader) AtEnd() bool {
	if r.end == nil && r.read == r.NumRows() {
		func() {
			defer recovered(&r.end)
			r.end = r.nextGroup() // there is none
		}()
	}
	return eof.Is(r.end)
}

// failed returns the error of a column.
func (r *Reader) failed(c *column, err error) error {
	if eof.Is(err) {
		err = fmt.Errorf("it ends at row %d of the file, not %d: %w", r.read, r.behind, parquet.ErrCorrupted)
	}
	return fmt.Errorf("row group %d: column %s: %w", r.group, c.name, err)
}

// nextGroup opens the next row group that has rows, and closes the open one.
func (r *Reader) nextGroup() error {
	if r.open {
		r.open = false
		for i := range r.columns {
			if err := r.columns[i].close(); err != nil {
				return r.failed(&r.columns[i], err)
			}
		}
	}
	groups := r.file.Metadata().RowGroups
	for r.group+1 < len(groups) && groups[r.group+1].NumRows == 0 {
		r.group++
	}
	if r.group+1 == len(groups) {
		return io.EOF
	}
	r.group++
	r.first, r.behind = r.behind, r.behind+groups[r.group].NumRows
	chunks, err := r.load(&groups[r.group])
	if err != nil {
		return fmt.Errorf("row group %d: %w", r.group, err)
	}
	for i := range r.columns {
		c := &r.columns[i]
		codec := groups[r.group].Columns[c.index].MetaData.Codec
		c.start(pages{leaf: &c.leaf, codec: codec, rest: chunks[i], maxBytes: r.options.MaxBytes, decompressor: &r.decompressor})
		if err := c.skip(r.skip); err != nil {
			return r.failed(c, err)
		}
	}
	r.open, r.skip = true, 0
	return nil
}

// load reads the columns of a row group into memory, and checks the sizes of their pages.
func (r *Reader) load(g *format.RowGroup) (chunks [][]byte, err error) {
	all := make([]span, len(r.columns))
	for i := range r.columns {
		all[i] = chunkSpan(&g.Columns[r.columns[i].index].MetaData)
	}
	spans := merged(slices.Clone(all))
	need := size(spans)
	if need > r.options.MaxBytes {
		return nil, r.tooLarge(need)
	}
	if err := r.in.load(spans); err != nil {
		return nil, err
	}
	for i := range r.columns {
		chunk, _ := r.in.find(all[i].from, all[i].to-all[i].from) // it was loaded
		memory, values, err := measure(chunk)
		if err == nil && values != g.Columns[r.columns[i].index].MetaData.NumValues {
			err = fmt.Errorf("its pages have %d values, the metadata state %d: %w", values, g.Columns[r.columns[i].index].MetaData.NumValues, parquet.ErrCorrupted)
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", r.columns[i].name, err)
		}
		if need += memory; need > r.options.MaxBytes {
			return nil, r.tooLarge(need)
		}
		chunks = append(chunks, chunk)
	}
	return chunks, nil
}

func (r *Reader) tooLarge(bytes int64) error {
	return fmt.Errorf("it needs %d bytes of memory, more than the limit of %d; raise the limit, or write smaller row groups", bytes, r.options.MaxBytes)
}

// extent returns the place of a row group in the file.
func extent(g *format.RowGroup) (all span) {
	for i := range g.Columns {
		one := chunkSpan(&g.Columns[i].MetaData)
		if i == 0 || one.from < all.from {
			all.from = one.from
		}
		all.to = max(all.to, one.to)
	}
	return all
}

// chunkSpan returns the place of a column chunk in the file.
func chunkSpan(m *format.ColumnMetaData) span {
	start := m.DataPageOffset
	if m.DictionaryPageOffset > 0 {
		start = min(m.DictionaryPageOffset, start)
	}
	return span{start, start + m.TotalCompressedSize}
}

// checkChunk checks the metadata of a column chunk; end is the offset of the footer.
func (l *leaf) checkChunk(c *format.ColumnChunk, end int64) error {
	m := &c.MetaData
	place := chunkSpan(m)
	switch {
	case c.CryptoMetadata.Value != nil || len(c.EncryptedColumnMetadata) > 0:
		return errors.New("it is encrypted")
	case c.FilePath != "":
		return fmt.Errorf("its data are in another file, %q", c.FilePath)
	case parquet.Kind(m.Type) != l.kind:
		return fmt.Errorf("its data are of type %s, not %s: %w", m.Type, l.kind, parquet.ErrCorrupted)
	case m.TotalCompressedSize < 0 || place.from < int64(len(Magic)) || place.to < place.from || place.to > end:
		return fmt.Errorf("%d bytes at offset %d are not before the metadata at %d: %w", m.TotalCompressedSize, place.from, end, parquet.ErrCorrupted)
	}
	return nil
}

// measure returns the memory of a column, which is that of its largest data page, compressed and
// decompressed, and its dictionary, and the number of its values.
func measure(chunk []byte) (memory, values int64, err error) {
	var dictionary, data int64
	for len(chunk) > 0 {
		header, _, err := nextPage(&chunk)
		if err != nil {
			return 0, 0, err
		}
		bytes := int64(header.CompressedPageSize) + int64(header.UncompressedPageSize)
		one, encoding := header.DataPageHeader.V.NumValues, header.DataPageHeader.V.Encoding
		switch header.Type {
		case format.DictionaryPage:
			one = header.DictionaryPageHeader.V.NumValues
		case format.DataPageV2:
			one, encoding = header.DataPageHeaderV2.V.NumValues, header.DataPageHeaderV2.V.Encoding
		}
		if one < 0 {
			return 0, 0, fmt.Errorf("a page has %d values: %w", one, parquet.ErrCorrupted)
		}
		if header.Type == format.DictionaryPage {
			dictionary += bytes + valueBytes*int64(one)
			continue
		}
		values += int64(one)
		bytes += levelBytes * int64(one)
		if encoding == format.DeltaBinaryPacked || encoding == format.DeltaLengthByteArray || encoding == format.DeltaByteArray {
			bytes += lengthBytes * int64(one)
		}
		data = max(data, bytes)
	}
	return dictionary + data, values, nil
}
