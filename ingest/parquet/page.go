package parquet

import (
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// pages reads the pages of a column chunk that is in memory.
type pages struct {
	leaf       *leaf
	codec      format.CompressionCodec
	rest       []byte
	read       int // pages
	dictionary []parquet.Value
	maxBytes   int64
	*decompressor
	buffer []byte // of the last page; reused if nothing refers to it
}

// page is a data page.
type page struct {
	repetition, definition []byte // levels; nil: all are zero, or there are none
	full                   byte   // definition level of a value that is not null
	at, n                  int    // values, also null
	values                 values
}

// next returns the next data page, io.EOF behind the last one. The values of the last one are
// invalid if reuse is set.
func (p *pages) next(reuse bool) (*page, error) {
	if !reuse {
		p.buffer = nil
	}
	for len(p.rest) > 0 {
		header, bytes, err := nextPage(&p.rest)
		if err != nil {
			return nil, err
		}
		var one *page
		if header.CRC != 0 && crc32.ChecksumIEEE(bytes) != uint32(header.CRC) {
			err = fmt.Errorf("its checksum is wrong: %w", parquet.ErrCorrupted)
		} else {
			one, err = p.decode(header, bytes)
		}
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", p.read, err)
		}
		p.read++
		if one != nil {
			return one, nil
		}
	}
	return nil, io.EOF
}

// nextPage reads the header and the bytes of a page, and moves behind them.
func nextPage(rest *[]byte) (*format.PageHeader, []byte, error) {
	header := new(format.PageHeader)
	reader := new(thrift.CompactProtocol).NewReaderFromBytes(*rest)
	if err := thrift.NewDecoder(reader).Decode(header); err != nil {
		return nil, nil, fmt.Errorf("the header of a page: %w: %w", parquet.ErrCorrupted, err)
	}
	bytes := (*rest)[reader.BytesRead():]
	if header.CompressedPageSize < 0 || header.UncompressedPageSize < 0 || int64(header.CompressedPageSize) > int64(len(bytes)) {
		return nil, nil, fmt.Errorf("a page has %d bytes, %d decompressed, where %d follow: %w", header.CompressedPageSize, header.UncompressedPageSize, len(bytes), parquet.ErrCorrupted)
	}
	*rest = bytes[header.CompressedPageSize:]
	return header, bytes[:header.CompressedPageSize], nil
}

// decode decodes a page; nil: it is the dictionary.
func (p *pages) decode(header *format.PageHeader, bytes []byte) (*page, error) {
	switch {
	case header.Type == format.DictionaryPage && header.DictionaryPageHeader.Valid:
		return nil, p.readDictionary(&header.DictionaryPageHeader.V, int(header.UncompressedPageSize), bytes)
	case header.Type == format.DataPage && header.DataPageHeader.Valid:
		return p.version1(&header.DataPageHeader.V, int(header.UncompressedPageSize), bytes)
	case header.Type == format.DataPageV2 && header.DataPageHeaderV2.Valid:
		return p.version2(&header.DataPageHeaderV2.V, int(header.UncompressedPageSize), bytes)
	}
	return nil, fmt.Errorf("it is of the unknown type %d, or has no header of its type", header.Type)
}

// decompressed returns bytes decompressed, in the buffer of the page.
func (p *pages) decompressed(codec format.CompressionCodec, bytes []byte, size int) ([]byte, error) {
	if codec == format.Uncompressed && len(bytes) == size {
		return bytes, nil
	}
	if cap(p.buffer) < size {
		p.buffer = make([]byte, size)
	}
	to := p.buffer[:size:size]
	return to, p.decompress(codec, to, bytes)
}

func (p *pages) readDictionary(h *format.DictionaryPageHeader, size int, bytes []byte) error {
	switch {
	case p.dictionary != nil:
		return fmt.Errorf("it is a second dictionary: %w", parquet.ErrCorrupted)
	case h.Encoding != format.Plain && h.Encoding != plainDictionary:
		return fmt.Errorf("the encoding %s of a dictionary is not supported", h.Encoding)
	}
	data, err := p.decompressed(p.codec, bytes, size)
	if err != nil {
		return err
	}
	p.buffer = nil // the dictionary refers to it
	values, err := p.leaf.valuesOf(data, int(h.NumValues), format.Plain, nil, p.maxBytes)
	if err != nil {
		return err
	}
	p.dictionary = make([]parquet.Value, h.NumValues)
	return values.read(p.dictionary)
}

// version1 decodes a page whose levels and values are compressed together.
func (p *pages) version1(h *format.DataPageHeader, size int, bytes []byte) (one *page, err error) {
	data, err := p.decompressed(p.codec, bytes, size)
	if err != nil {
		return nil, err
	}
	one = &page{n: int(h.NumValues), full: byte(p.leaf.definition)}
	levels := func(encoding format.Encoding, highest int) (decoded []byte, err error) {
		if highest == 0 {
			return nil, nil
		}
		if encoding != format.RLE {
			return nil, fmt.Errorf("the encoding %s of levels is not supported", encoding)
		}
		var runs []byte
		if runs, data, err = sizedRuns(data); err != nil {
			return nil, err
		}
		return readLevels(runs, one.n, highest)
	}
	if one.repetition, err = levels(h.RepetitionLevelEncoding, p.leaf.repetition); err != nil {
		return nil, err
	}
	if one.definition, err = levels(h.DefinitionLevelEncoding, p.leaf.definition); err != nil {
		return nil, err
	}
	one.values, err = p.leaf.valuesOf(data, one.n-one.nulls(), h.Encoding, p.dictionary, p.maxBytes)
	return one, err
}

// version2 decodes a page whose levels are not compressed.
func (p *pages) version2(h *format.DataPageHeaderV2, size int, bytes []byte) (one *page, err error) {
	repetition, definition := int64(h.RepetitionLevelsByteLength), int64(h.DefinitionLevelsByteLength)
	levels := repetition + definition
	if repetition < 0 || definition < 0 || levels > int64(len(bytes)) || levels > int64(size) {
		return nil, fmt.Errorf("its levels have %d and %d bytes: %w", repetition, definition, parquet.ErrCorrupted)
	}
	one = &page{n: int(h.NumValues), full: byte(p.leaf.definition)}
	if p.leaf.repetition > 0 {
		if one.repetition, err = readLevels(bytes[:repetition], one.n, p.leaf.repetition); err != nil {
			return nil, err
		}
	}
	if p.leaf.definition > 0 {
		if one.definition, err = readLevels(bytes[repetition:levels], one.n, p.leaf.definition); err != nil {
			return nil, err
		}
	}
	if nulls := one.nulls(); nulls != int(h.NumNulls) {
		return nil, fmt.Errorf("it has %d nulls, its header states %d: %w", nulls, h.NumNulls, parquet.ErrCorrupted)
	}
	codec := p.codec
	if h.IsCompressed.Valid && !h.IsCompressed.V {
		codec = format.Uncompressed
	}
	data, err := p.decompressed(codec, bytes[levels:], size-int(levels))
	if err != nil {
		return nil, err
	}
	one.values, err = p.leaf.valuesOf(data, one.n-one.nulls(), h.Encoding, p.dictionary, p.maxBytes)
	return one, err
}

// readLevels decodes n levels of at most highest.
func readLevels(runs []byte, n, highest int) ([]byte, error) {
	h, err := newHybrid(runs, uint(bits.Len(uint(highest))))
	if err != nil {
		return nil, err
	}
	levels := make([]byte, n)
	var some [valuesAhead]uint32
	for at := 0; at < n; {
		numbers := some[:min(n-at, len(some))]
		if err := h.read(numbers); err != nil {
			return nil, fmt.Errorf("levels: %w", err)
		}
		for _, level := range numbers {
			if int(level) > highest {
				return nil, errLevels
			}
			levels[at] = byte(level)
			at++
		}
	}
	return levels, nil
}

// nulls returns the number of values that are null.
func (p *page) nulls() (n int) {
	for _, level := range p.definition {
		if level != p.full {
			n++
		}
	}
	return n
}

// fill reads up to as many values as dst has; 0: there are no more.
func (p *page) fill(dst []parquet.Value) (n int, err error) {
	n = min(len(dst), p.n-p.at)
	dst = dst[:n]
	if p.definition == nil {
		p.at += n
		return n, p.values.read(dst)
	}
	levels := p.definition[p.at:][:n]
	present := 0
	for _, level := range levels {
		if level == p.full {
			present++
		}
	}
	// The values go to the end of dst, and from there forward to their places.
	from := n - present
	if err := p.values.read(dst[from:]); err != nil {
		return 0, err
	}
	for i, level := range levels {
		repetition := 0
		if p.repetition != nil {
			repetition = int(p.repetition[p.at+i])
		}
		value := parquet.Value{}
		if level == p.full {
			value = dst[from]
			from++
		}
		dst[i] = value.Level(repetition, int(level), 0)
	}
	p.at += n
	return n, nil
}
