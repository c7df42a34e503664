package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"docstore/internal/eof"
	"docstore/internal/testseed"
)

// TestCorpus reads a file of each combination, and compares it with the values that it was
// made of, and with those of parquet-go where that is right.
func TestCorpus(t *testing.T) {
	random := testseed.Rand(t)
	forEachOfTheCorpus(func(c corpusColumn) {
		c.simple = random.IntN(2) == 0
		file, rows := corpusFile(t, random, c)
		got, err := readAllRows(file, Options{})
		require.NoError(t, err, c)
		require.Equal(t, rows, got, c)
		if !c.simple || c.codec == format.Lz4Raw || c.kind == parquet.Boolean && c.encoding == format.RLE {
			return
		}
		compareValues(t, file, c)
	})
}

// compareValues compares the values of a file and their levels with those that parquet-go reads.
func compareValues(t *testing.T, file []byte, c corpusColumn) {
	second, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	r, err := Open(bytes.NewReader(file), int64(len(file)), Options{})
	require.NoError(t, err)
	for _, group := range second.RowGroups() {
		require.NoError(t, r.nextGroup())
		read := group.ColumnChunks()[0].Pages()
		for {
			page, err := read.ReadPage()
			if eof.Is(err) {
				break
			}
			require.NoError(t, err, c)
			want := make([]parquet.Value, page.NumValues())
			if n, err := page.Values().ReadValues(want); n < len(want) {
				require.NoError(t, err, c)
			}
			for _, value := range want {
				if len(r.columns[0].next) == 0 {
					require.NoError(t, r.columns[0].fill(0))
				}
				got := r.columns[0].next[0]
				r.columns[0].next = r.columns[0].next[1:]
				same := parquet.Equal(got, value) && got.DefinitionLevel() == value.DefinitionLevel() && got.RepetitionLevel() == value.RepetitionLevel()
				require.True(t, same, "%s: %+v and %+v", c, got, value)
			}
			parquet.Release(page)
		}
		require.NoError(t, r.columns[0].close())
		require.NoError(t, read.Close())
		r.open = false
	}
}

// readAllRows returns the rows before the first error. The file must be at its end if there is
// none, else not.
func readAllRows(file []byte, o Options) (rows []string, err error) {
	r, err := Open(bytes.NewReader(file), int64(len(file)), o)
	atEnd := err == nil && r.AtEnd()
	for err == nil {
		var text []byte
		text, err = r.Next()
		if err == nil {
			rows = append(rows, string(text))
			atEnd = r.AtEnd()
		}
	}
	if atEnd != eof.Is(err) {
		return rows, fmt.Errorf("AtEnd returns %v before: %w", atEnd, err)
	}
	if atEnd {
		return rows, nil
	}
	return rows, err
}

// TestDamagedCorpus: a damaged file is an error; damage that no checksum covers may change values,
// but never leaves out rows.
func TestDamagedCorpus(t *testing.T) {
	random := testseed.Rand(t)
	forEachOfTheCorpus(func(c corpusColumn) {
		if random.IntN(8) > 0 {
			return
		}
		file, rows := corpusFile(t, random, c)
		footer := len(file) - 8 - int(binary.LittleEndian.Uint32(file[len(file)-8:]))
		covered := checksummed(t, file[len(Magic):footer])
		for range 10 {
			at := random.IntN(len(file))
			_, err := readAllRows(file[:at], Options{})
			require.Error(t, err, "%s: cut to %d of %d bytes", c, at, len(file))

			if at < len(Magic) {
				continue // the footer decides
			}
			damaged := bytes.Clone(file)
			damaged[at] ^= byte(1 + random.IntN(255))
			got, err := readAllRows(damaged, Options{})
			if at < footer && covered[at-len(Magic)] {
				require.ErrorContains(t, err, "column c: page ", "%s: byte %d of %d", c, at, len(file))
			} else if err == nil {
				require.Len(t, got, len(rows), "%s: byte %d of %d", c, at, len(file))
			}
		}
	})
}

// checksummed reports which bytes of chunks the checksums of pages cover.
func checksummed(t *testing.T, chunks []byte) []bool {
	covered := make([]bool, len(chunks))
	for rest := chunks; len(rest) > 0; {
		_, data, err := nextPage(&rest)
		require.NoError(t, err)
		behind := len(chunks) - len(rest)
		for i := behind - len(data); i < behind; i++ {
			covered[i] = true
		}
	}
	return covered
}

// TestChunks: files whose metadata do not match their data are refused, with the place.
func TestChunks(t *testing.T) {
	random := testseed.Rand(t)
	for _, test := range []struct {
		name   string
		change func(m *format.FileMetaData, c *format.ColumnChunk) // of the second row group
		want   string
	}{
		{"beyond the end", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.DataPageOffset += 1 << 40 }, "are not before the metadata"},
		{"into the footer", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.TotalCompressedSize++ }, "are not before the metadata"},
		{"overflow", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.TotalCompressedSize = math.MaxInt64 }, "are not before the metadata"},
		{"too short", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.TotalCompressedSize-- }, "column c: a page has "},
		{"fewer values", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.NumValues++ }, "column c: its pages have "},
		{"another type", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.Type = format.Double }, "its data are of type DOUBLE, not INT64"},
		{"another file", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.FilePath = "part-1" }, `its data are in another file, "part-1"`},
		{"encrypted", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.EncryptedColumnMetadata = []byte("x") }, "it is encrypted"},
		{"an old compression", func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.Codec = format.Lz4 }, "LZ4: this compression is not supported"},
		{"fewer rows", func(m *format.FileMetaData, _ *format.ColumnChunk) { m.RowGroups[1].NumRows--; m.NumRows-- }, "column c: it has values behind the last row"},
		{"more rows", func(m *format.FileMetaData, _ *format.ColumnChunk) { m.RowGroups[1].NumRows++; m.NumRows++ }, "column c: it ends at row "},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := corpusColumn{parquet.Int64, format.Plain, required, format.Snappy, 1 + random.IntN(2), true}
			file, _ := corpusFile(t, random, c, func(m *format.FileMetaData) { test.change(m, &m.RowGroups[1].Columns[0]) })
			_, err := readAllRows(file, Options{})
			require.ErrorContains(t, err, "row group 1: ")
			require.NotContains(t, err.Error(), "AtEnd")
			require.ErrorContains(t, err, test.want)
			require.False(t, errors.Is(err, io.EOF))
		})
	}
}

// TestLogicalTypes: values of types that parquet-go does not write, or not with these values.
func TestLogicalTypes(t *testing.T) {
	int32Of := func(n int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }
	fixed := func(length int32) format.SchemaElement {
		return format.SchemaElement{Type: thrift.New(format.FixedLenByteArray), TypeLength: thrift.New(length)}
	}
	of := func(element format.SchemaElement, logical format.LogicalTypeValue) format.SchemaElement {
		element.LogicalType = format.LogicalType{Value: logical}
		return element
	}
	number := format.SchemaElement{Type: thrift.New(format.Int32)}
	half := of(fixed(2), new(format.Float16Type))
	date := of(number, new(format.DateType))
	for _, test := range []struct {
		name    string
		element format.SchemaElement
		plain   []byte
		want    string
	}{
		{"float16", half, []byte{0x00, 0xc1}, "-2.5"},
		{"float16, the least", half, []byte{0x01, 0x00}, "5.9604645e-08"},
		{"float16, infinite", half, []byte{0x00, 0x7c}, `"Infinity"`},
		{"float16, no number", half, []byte{0x01, 0x7c}, "null"},
		{"float16 of 3 bytes", of(fixed(3), new(format.Float16Type)), []byte{1, 2, 3}, "!a float16 has 3 bytes"},
		{"the last date", date, int32Of(2932896), `"9999-12-31"`},
		{"a later date", date, int32Of(2932897), "!the year 10000 is not from 0 to 9999"},
		{"the first date", date, int32Of(-719528), `"0000-01-01"`},
		{"an earlier date", date, int32Of(-719529), "!the year -1 is not from 0 to 9999"},
		{"a value of a column of nulls", of(number, new(format.NullType)), int32Of(0), "!a column of the type UNKNOWN has a value"},
		{"a string of numbers", of(number, new(format.StringType)), int32Of(0), "!column c is of type INT32, and cannot be STRING"},
		{"no length", fixed(0), nil, "!the values of column c have 0 bytes"},
		{"an unknown type", format.SchemaElement{Type: thrift.New(format.Type(8))}, nil, "!column c is of the unknown type 8"},
		{"of two bytes less", number, int32Of(0)[:2], "!page 0: the data end before the values"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows, err := readAllRows(leafFile(t, test.element, test.plain...), Options{})
			if want, refused := strings.CutPrefix(test.want, "!"); refused {
				require.ErrorContains(t, err, want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{`{"c":` + test.want + `}`}, rows)
		})
	}
}

// TestDamagedValues: pages whose data do not have the values that their headers state.
func TestDamagedValues(t *testing.T) {
	for _, test := range []struct {
		name     string
		leaf     leaf
		encoding format.Encoding
		data     string
		want     string
	}{
		{"int", leaf{kind: parquet.Int32}, format.Plain, "\x01\x00\x00\x00\x02\x00\x00", "the data end before the values"},
		{"bytes", leaf{kind: parquet.ByteArray}, format.Plain, "\x01\x00\x00\x00a\x02\x00\x00\x00b", "the data end before the values"},
		{"boolean", leaf{kind: parquet.Boolean}, format.Plain, "", "the data end before the values"},
		{"fixed", leaf{kind: parquet.FixedLenByteArray, length: 3}, format.Plain, "abcde", "the data end before the values"},
		{"split", leaf{kind: parquet.Int32}, format.ByteStreamSplit, "abcdefghi", "9 bytes of BYTE_STREAM_SPLIT are not 2 values of 4 bytes"},
		{"runs", leaf{kind: parquet.Boolean}, format.RLE, "\x02\x00\x00\x00\x02\x01", "the runs end too early"},
		{"runs of more bits", leaf{kind: parquet.Boolean}, format.RLE, "\x02\x00\x00\x00\x04\x02", "a number of more than 1 bits"},
		{"delta of more", leaf{kind: parquet.Int32}, format.DeltaBinaryPacked, "\x80\x01\x04\x03\x00", "DELTA_BINARY_PACKED has 3 values, not 2"},
		{"delta without a block", leaf{kind: parquet.Int32}, format.DeltaBinaryPacked, "\x80\x01\x04\x02\x00", "the data of DELTA_BINARY_PACKED are damaged"},
		{"a negative length", leaf{kind: parquet.ByteArray}, format.DeltaLengthByteArray, "\x80\x01\x04\x02\x01\x00\x00\x00\x00\x00", "a value of -1 bytes"},
		{"no dictionary", leaf{kind: parquet.Int32}, format.RLEDictionary, "\x01\x04\x01", "it has indexes without a dictionary"},
		{"another encoding", leaf{kind: parquet.Double}, format.DeltaBinaryPacked, "", "the encoding DELTA_BINARY_PACKED of DOUBLE is not supported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			decoder, err := test.leaf.valuesOf([]byte(test.data), 2, test.encoding, nil, MinMaxBytes)
			if err == nil {
				err = decoder.read(make([]parquet.Value, 2))
			}
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := readLevels([]byte{0x04, 0x03}, 2, 2)
	require.ErrorIs(t, err, errLevels)
	indexed, err := newIndexes([]byte("\x01\x04\x01"), make([]parquet.Value, 1))
	require.NoError(t, err)
	require.ErrorContains(t, indexed.read(make([]parquet.Value, 2)), "index 1 of a dictionary of 1 values")
	many := appendDelta(appendDelta(nil, []int64{0, 1 << 20}, false), []int64{1 << 20, 0}, false)
	_, err = (&leaf{kind: parquet.ByteArray}).valuesOf(append(many, make([]byte, 1<<20)...), 2, format.DeltaByteArray, nil, MinMaxBytes)
	require.ErrorContains(t, err, "have 2097152 bytes, more than the limit of 1048576")
}

// TestPagesOfNullsWithoutData: there is nothing to decode in any encoding, and a column of nulls
// may have no dictionary.
func TestPagesOfNullsWithoutData(t *testing.T) {
	for _, test := range []struct {
		leaf     leaf
		encoding format.Encoding
	}{
		{leaf{kind: parquet.Int32}, format.Plain}, {leaf{kind: parquet.ByteArray}, format.RLEDictionary},
		{leaf{kind: parquet.Boolean}, format.RLE}, {leaf{kind: parquet.Int64}, format.DeltaBinaryPacked},
		{leaf{kind: parquet.ByteArray}, format.DeltaLengthByteArray}, {leaf{kind: parquet.ByteArray}, format.DeltaByteArray},
		{leaf{kind: parquet.Double}, format.ByteStreamSplit},
	} {
		decoder, err := test.leaf.valuesOf(nil, 0, test.encoding, nil, MinMaxBytes)
		require.NoError(t, err, test.encoding)
		require.NoError(t, decoder.read(nil), test.encoding)
	}
}

// TestDictionaryOfNegativeSize: it does not make room for a page that exceeds the limit.
func TestDictionaryOfNegativeSize(t *testing.T) {
	header, err := thrift.Marshal(new(thrift.CompactProtocol), &format.PageHeader{
		Type:                 format.DictionaryPage,
		DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: -1 << 31}),
	})
	require.NoError(t, err)
	_, _, err = measure(header)
	require.ErrorIs(t, err, parquet.ErrCorrupted)
}
