package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
)

// corpusColumn describes the only column of a file of the corpus, which the test writes itself:
// the writer of parquet-go has the errors of its reader, and cannot write all encodings.
type corpusColumn struct {
	kind     parquet.Kind
	encoding format.Encoding
	shape    corpusShape
	codec    format.CompressionCodec
	version  int
	simple   bool // parquet-go can read it, if its encoding and compression are right there
}

type corpusShape int

const (
	required corpusShape = iota
	optional
	repeated
	onlyNulls
	shapes
)

const corpusLength = 5 // of a value of type FIXED_LEN_BYTE_ARRAY

// corpusEncodings has the encodings of each type.
var corpusEncodings = map[parquet.Kind][]format.Encoding{
	parquet.Boolean:           {format.Plain, format.RLE},
	parquet.Int32:             {format.Plain, format.RLEDictionary, format.DeltaBinaryPacked, format.ByteStreamSplit},
	parquet.Int64:             {format.Plain, plainDictionary, format.DeltaBinaryPacked, format.ByteStreamSplit},
	parquet.Int96:             {format.Plain, format.RLEDictionary},
	parquet.Float:             {format.Plain, plainDictionary, format.ByteStreamSplit},
	parquet.Double:            {format.Plain, format.RLEDictionary, format.ByteStreamSplit},
	parquet.ByteArray:         {format.Plain, format.RLEDictionary, format.DeltaLengthByteArray, format.DeltaByteArray},
	parquet.FixedLenByteArray: {format.Plain, format.RLEDictionary, format.DeltaByteArray, format.ByteStreamSplit},
}

var corpusCodecs = map[format.CompressionCodec]compress.Codec{
	format.Uncompressed: &parquet.Uncompressed, format.Snappy: &parquet.Snappy, format.Gzip: &parquet.Gzip,
	format.Brotli: &parquet.Brotli, format.Zstd: &parquet.Zstd, format.Lz4Raw: &parquet.Lz4Raw,
}

// randomValue returns a value, plain encoded, and its JSON.
func randomValue(r *rand.Rand, kind parquet.Kind) (plain []byte, text string) {
	n := r.Uint64() >> r.IntN(64)
	if r.IntN(3) == 0 {
		n = -n
	}
	little := binary.LittleEndian
	switch kind {
	case parquet.Boolean:
		bit := byte(r.IntN(5) / 4)
		return []byte{bit}, strconv.FormatBool(bit == 1)
	case parquet.Int32:
		return little.AppendUint32(nil, uint32(n)), strconv.Itoa(int(int32(n)))
	case parquet.Int64:
		return little.AppendUint64(nil, n), strconv.FormatInt(int64(n), 10)
	case parquet.Int96:
		at := time.Unix(r.Int64N(4e9), r.Int64N(1e9)).UTC()
		inDay := at.Sub(at.Truncate(24 * time.Hour))
		plain = little.AppendUint64(nil, uint64(inDay))
		return little.AppendUint32(plain, uint32(at.Unix()/86400+2440588)), at.Format(`"2006-01-02T15:04:05.000000000Z"`)
	case parquet.Float:
		f := float32(r.NormFloat64())
		return little.AppendUint32(nil, math.Float32bits(f)), strconv.FormatFloat(float64(f), 'g', -1, 32)
	case parquet.Double:
		f := r.NormFloat64()
		return little.AppendUint64(nil, math.Float64bits(f)), strconv.FormatFloat(f, 'g', -1, 64)
	}
	plain = bytes.Repeat([]byte{'a'}, r.IntN(30))
	plain = little.AppendUint64(plain, n)
	if kind == parquet.FixedLenByteArray {
		plain = plain[len(plain)-corpusLength:]
	}
	return plain, strconv.Quote(base64.StdEncoding.EncodeToString(plain))
}

// appendRuns encodes numbers of width bits as a random mixture of runs.
func appendRuns(dst []byte, r *rand.Rand, numbers []uint32, width int) []byte {
	for len(numbers) > 0 {
		same := 1
		for same < len(numbers) && numbers[same] == numbers[0] {
			same++
		}
		if same >= 8 || r.IntN(4) == 0 {
			same = 1 + r.IntN(same)
			dst = binary.AppendUvarint(dst, uint64(same)<<1)
			dst = append(dst, binary.LittleEndian.AppendUint32(nil, numbers[0])[:(width+7)/8]...)
			numbers = numbers[same:]
			continue
		}
		groups := 1 + r.IntN(3)
		if 8*groups > len(numbers) {
			groups = (len(numbers) + 7) / 8
			numbers = append(numbers, make([]uint32, 8*groups-len(numbers))...)
		}
		dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
		wide := make([]uint64, 8*groups)
		for i := range wide {
			wide[i] = uint64(numbers[i])
		}
		dst = appendPacked(dst, wide, width)
		numbers = numbers[8*groups:]
	}
	return dst
}

// appendPacked bit-packs numbers, from the least significant bit on.
func appendPacked(dst []byte, numbers []uint64, width int) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, (len(numbers)*width+7)/8)...)
	for i, number := range numbers {
		for bit := range width {
			if number>>bit&1 == 1 {
				at := i*width + bit
				dst[start+at/8] |= 1 << (at % 8)
			}
		}
	}
	return dst
}

// appendDelta encodes integers as DELTA_BINARY_PACKED, with differences of 32 bits if narrow is
// set: programs differ.
func appendDelta(dst []byte, numbers []int64, narrow bool) []byte {
	const block, miniblocks, inMiniblock = 128, 4, 32
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, block), miniblocks)
	dst = binary.AppendUvarint(dst, uint64(len(numbers)))
	if len(numbers) == 0 {
		return binary.AppendVarint(dst, 0)
	}
	dst = binary.AppendVarint(dst, numbers[0])
	var deltas []int64
	for i := 1; i < len(numbers); i++ {
		delta := numbers[i] - numbers[i-1]
		if narrow {
			delta = int64(int32(delta))
		}
		deltas = append(deltas, delta)
	}
	for len(deltas) > 0 {
		some := deltas[:min(len(deltas), block)]
		deltas = deltas[len(some):]
		least := some[0]
		for _, d := range some {
			least = min(least, d)
		}
		dst = binary.AppendVarint(dst, least)
		widths := len(dst)
		dst = append(dst, make([]byte, miniblocks)...)
		for i := 0; len(some) > 0; i++ {
			packed := make([]uint64, inMiniblock)
			width := 0
			for j, d := range some[:min(len(some), inMiniblock)] {
				packed[j] = uint64(d - least)
				width = max(width, bits.Len64(packed[j]))
			}
			dst[widths+i] = byte(width)
			dst = appendPacked(dst, packed, width)
			some = some[min(len(some), inMiniblock):]
		}
	}
	return dst
}

// encodeValues encodes plain values.
func encodeValues(r *rand.Rand, c corpusColumn, all, dictionary [][]byte) (data []byte) {
	numbers := make([]int64, len(all))
	for i, one := range all {
		switch c.kind {
		case parquet.Int32:
			numbers[i] = int64(int32(binary.LittleEndian.Uint32(one)))
		case parquet.Int64:
			numbers[i] = int64(binary.LittleEndian.Uint64(one))
		case parquet.ByteArray:
			numbers[i] = int64(len(one))
		}
	}
	switch c.encoding {
	case format.Plain:
		return plainValues(c, all)
	case format.RLE:
		bits := make([]uint32, len(all))
		for i := range all {
			bits[i] = uint32(all[i][0])
		}
		return sized(appendRuns(nil, r, bits, 1))
	case plainDictionary, format.RLEDictionary:
		indexes := make([]uint32, len(all))
		for i, one := range all {
			for !bytes.Equal(dictionary[indexes[i]], one) {
				indexes[i]++
			}
		}
		width := bits.Len(uint(len(dictionary)))
		return appendRuns([]byte{byte(width)}, r, indexes, width)
	case format.ByteStreamSplit:
		for i := range len(plainValues(c, all[:min(1, len(all))])) {
			for _, one := range all {
				data = append(data, one[i])
			}
		}
		return data
	case format.DeltaBinaryPacked:
		return appendDelta(nil, numbers, c.kind == parquet.Int32 && c.simple)
	case format.DeltaLengthByteArray:
		return append(appendDelta(nil, numbers, true), bytes.Join(all, nil)...)
	}
	prefixes, suffixes, rest := make([]int64, len(all)), make([]int64, len(all)), []byte(nil)
	for i, one := range all {
		prefix := 0
		for i > 0 && prefix < min(len(one), len(all[i-1])) && one[prefix] == all[i-1][prefix] {
			prefix++
		}
		prefixes[i], suffixes[i], rest = int64(prefix), int64(len(one)-prefix), append(rest, one[prefix:]...)
	}
	return append(appendDelta(appendDelta(nil, prefixes, true), suffixes, true), rest...)
}

func plainValues(c corpusColumn, all [][]byte) (data []byte) {
	if c.kind == parquet.Boolean {
		wide := make([]uint64, len(all))
		for i := range all {
			wide[i] = uint64(all[i][0])
		}
		return appendPacked(nil, wide, 1)
	}
	for _, one := range all {
		if c.kind == parquet.ByteArray {
			data = binary.LittleEndian.AppendUint32(data, uint32(len(one)))
		}
		data = append(data, one...)
	}
	return data
}

func sized(runs []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(runs))), runs...)
}

// corpusFile writes a file of a column, and returns it with the JSON of its rows.
func corpusFile(t testing.TB, r *rand.Rand, c corpusColumn, change ...func(*format.FileMetaData)) (file []byte, rows []string) {
	file = []byte(Magic)
	var groups []format.RowGroup
	for group := range 2 {
		if group == 1 && !c.simple {
			c.codec = format.Zstd // each chunk has its own
		}
		start := int64(len(file))
		var chunk corpusChunk
		chunk.build(t, r, c)
		file = append(file, chunk.file...)
		meta := format.ColumnMetaData{
			Type: format.Type(c.kind), Encoding: thrift.Slice[format.Encoding]{c.encoding}, PathInSchema: thrift.Slice[string]{"c"}, Codec: c.codec,
			NumValues: chunk.values, TotalUncompressedSize: chunk.uncompressed, TotalCompressedSize: int64(len(chunk.file)), DataPageOffset: start + chunk.dictionary,
		}
		if chunk.dictionary > 0 {
			meta.DictionaryPageOffset = start
		}
		groups = append(groups, format.RowGroup{Columns: thrift.Slice[format.ColumnChunk]{{MetaData: meta}}, NumRows: int64(len(chunk.rows))})
		rows = append(rows, chunk.rows...)
	}
	leaf := format.SchemaElement{Name: "c", Type: thrift.New(format.Type(c.kind)), RepetitionType: thrift.New(format.Required)}
	if c.kind == parquet.FixedLenByteArray {
		leaf.TypeLength = thrift.New(int32(corpusLength))
	}
	switch c.shape {
	case optional, onlyNulls:
		leaf.RepetitionType = thrift.New(format.Optional)
	case repeated:
		leaf.RepetitionType = thrift.New(format.Repeated)
	}
	metadata := format.FileMetaData{
		Version: 2, Schema: thrift.Slice[format.SchemaElement]{{Name: "root", NumChildren: thrift.New(int32(1))}, leaf},
		NumRows: int64(len(rows)), RowGroups: groups,
	}
	for _, f := range change {
		f(&metadata)
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &metadata)
	require.NoError(t, err)
	file = binary.LittleEndian.AppendUint32(append(file, footer...), uint32(len(footer)))
	return append(file, Magic...), rows
}

// corpusChunk is a column chunk that is written.
type corpusChunk struct {
	file         []byte
	dictionary   int64 // size of the dictionary's page
	values       int64
	uncompressed int64
	rows         []string
}

// build writes the pages of a chunk. Its last row is continued in the next page if the version
// of pages allows that.
func (k *corpusChunk) build(t testing.TB, r *rand.Rand, c corpusColumn) {
	var dictionary [][]byte
	var texts []string
	if c.encoding == plainDictionary || c.encoding == format.RLEDictionary {
		for range 1 + r.IntN(40) {
			plain, text := randomValue(r, c.kind)
			dictionary, texts = append(dictionary, plain), append(texts, text)
		}
		data := plainValues(c, dictionary)
		k.page(t, r, c, nil, data, format.PageHeader{Type: format.DictionaryPage, DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{
			NumValues: int32(len(dictionary)), Encoding: format.Plain,
		})})
		k.dictionary = int64(len(k.file))
	}
	var elements []string // of the last row
	for range 3 {
		var all [][]byte
		var repetition, definition []uint32
		nulls, newRows := 0, 0
		n := r.IntN(150)
		if c.simple {
			n++
		}
		for i := range n {
			again := c.shape == repeated && k.values > 0 && r.IntN(3) > 0 && (i > 0 || c.version == 1)
			if again && elements == nil {
				again = false // the row is empty
			}
			present := c.shape == required || c.shape != onlyNulls && (again || r.IntN(4) > 0)
			text := "null"
			if present {
				var plain []byte
				if dictionary != nil {
					index := r.IntN(len(dictionary))
					plain, text = dictionary[index], texts[index]
				} else {
					plain, text = randomValue(r, c.kind)
				}
				all = append(all, plain)
			} else {
				nulls++
			}
			k.values++
			definition = append(definition, map[bool]uint32{true: 1}[present])
			repetition = append(repetition, map[bool]uint32{true: 1}[again])
			if c.shape == repeated {
				if !again {
					elements = nil
					k.rows, newRows = append(k.rows, ""), newRows+1
				}
				if present {
					elements = append(elements, text)
				}
				text = "[" + strings.Join(elements, ",") + "]"
				k.rows[len(k.rows)-1] = `{"c":` + text + `}`
			} else {
				k.rows, newRows = append(k.rows, `{"c":`+text+`}`), newRows+1
			}
		}
		k.dataPage(t, r, c, levelsOf(r, c, repetition, definition), encodeValues(r, c, all, dictionary), len(definition), nulls, newRows)
	}
}

// levelsOf returns the runs of the levels that the shape has.
func levelsOf(r *rand.Rand, c corpusColumn, repetition, definition []uint32) (runs [2][]byte) {
	if c.shape == repeated {
		runs[0] = appendRuns([]byte{}, r, repetition, 1)
	}
	if c.shape != required {
		runs[1] = appendRuns([]byte{}, r, definition, 1)
	}
	return runs
}

func (k *corpusChunk) dataPage(t testing.TB, r *rand.Rand, c corpusColumn, levels [2][]byte, data []byte, n, nulls, rows int) {
	if c.version == 2 {
		h := format.DataPageHeaderV2{
			NumValues: int32(n), NumNulls: int32(nulls), NumRows: int32(rows), Encoding: c.encoding,
			RepetitionLevelsByteLength: int32(len(levels[0])), DefinitionLevelsByteLength: int32(len(levels[1])),
		}
		k.page(t, r, c, append(levels[0], levels[1]...), data, format.PageHeader{Type: format.DataPageV2, DataPageHeaderV2: thrift.New(h)})
		return
	}
	var whole []byte
	for _, runs := range levels {
		if runs != nil {
			whole = append(whole, sized(runs)...)
		}
	}
	h := format.DataPageHeader{NumValues: int32(n), Encoding: c.encoding, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE}
	k.page(t, r, c, nil, append(whole, data...), format.PageHeader{Type: format.DataPage, DataPageHeader: thrift.New(h)})
}

// page writes a page: levels that are not compressed, and data that are.
func (k *corpusChunk) page(t testing.TB, r *rand.Rand, c corpusColumn, levels, data []byte, header format.PageHeader) {
	compressed := data
	h := &header.DataPageHeaderV2
	switch {
	case h.Valid && r.IntN(4) == 0:
		h.V.IsCompressed = thrift.New(false)
	case h.Valid && len(data) == 0 && !c.simple: // as parquet-java writes it
	default:
		var err error
		compressed, err = corpusCodecs[c.codec].Encode(nil, data)
		require.NoError(t, err)
	}
	bytes := slices.Concat(levels, compressed)
	header.UncompressedPageSize, header.CompressedPageSize = int32(len(levels)+len(data)), int32(len(bytes))
	header.CRC = int32(crc32.ChecksumIEEE(bytes))
	encoded, err := thrift.Marshal(new(thrift.CompactProtocol), &header)
	require.NoError(t, err)
	k.file = append(append(k.file, encoded...), bytes...)
	k.uncompressed += int64(len(encoded)) + int64(header.UncompressedPageSize)
}

// forEachOfTheCorpus calls test with each combination of types, encodings, compressions, versions
// of pages, and shapes.
func forEachOfTheCorpus(test func(c corpusColumn)) {
	for kind, encodings := range corpusEncodings {
		for _, encoding := range encodings {
			for codec := range corpusCodecs {
				for shape := range shapes {
					for _, version := range []int{1, 2} {
						test(corpusColumn{kind, encoding, shape, codec, version, false})
					}
				}
			}
		}
	}
}

func (c corpusColumn) String() string {
	return fmt.Sprintf("%s, %s, %s, shape %d, version %d", c.kind, c.encoding, c.codec, c.shape, c.version)
}

// leafFile writes a file of one value of a type.
func leafFile(t testing.TB, element format.SchemaElement, plain ...byte) []byte {
	t.Helper()
	c := corpusColumn{kind: parquet.Kind(element.Type.V), simple: true, version: 1}
	var k corpusChunk
	k.dataPage(t, rand.New(rand.NewPCG(0, 0)), c, [2][]byte{}, plain, 1, 0, 1)
	meta := format.ColumnMetaData{Type: element.Type.V, NumValues: 1, TotalCompressedSize: int64(len(k.file)), DataPageOffset: int64(len(Magic))}
	element.Name, element.RepetitionType = "c", thrift.New(format.Required)
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &format.FileMetaData{
		Schema: thrift.Slice[format.SchemaElement]{{Name: "root", NumChildren: thrift.New(int32(1))}, element}, NumRows: 1,
		RowGroups: []format.RowGroup{{Columns: thrift.Slice[format.ColumnChunk]{{MetaData: meta}}, NumRows: 1}},
	})
	require.NoError(t, err)
	file := append(append([]byte(Magic), k.file...), footer...)
	return append(binary.LittleEndian.AppendUint32(file, uint32(len(footer))), Magic...)
}
