package parquet

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// values decodes the values of a page, without nulls.
type values interface {
	// read reads as many values as dst has. Their bytes may be those of the page.
	read(dst []parquet.Value) error
}

// errShort: a page has fewer values than its header states.
var errShort = fmt.Errorf("the data end before the values: %w", parquet.ErrCorrupted)

// plainDictionary is deprecated, but files of older writers have it.
const plainDictionary = format.PlainDictionary //nolint:staticcheck // see above

// valuesOf returns the n values of a page in an encoding. The dictionary is that of the column;
// nil: none. maxBytes bounds the memory of values that are not bytes of the page.
func (l *leaf) valuesOf(data []byte, n int, encoding format.Encoding, dictionary []parquet.Value, maxBytes int64) (values, error) {
	if n == 0 {
		return &plainBytes{}, nil // a page of nulls: some writers leave out the data, or the dictionary
	}
	convert, width := l.fixed()
	switch encoding {
	case format.Plain:
		switch l.kind {
		case parquet.Boolean:
			return &plainBooleans{data: data}, nil
		case parquet.ByteArray:
			return &plainBytes{data}, nil
		}
		return &plainFixed{data, width, convert}, nil
	case format.RLE:
		if l.kind == parquet.Boolean {
			return newBooleanRuns(data)
		}
	case plainDictionary, format.RLEDictionary:
		return newIndexes(data, dictionary)
	case format.ByteStreamSplit:
		if width > 0 {
			return newSplit(data, n, width, convert)
		}
	case format.DeltaBinaryPacked:
		if l.kind == parquet.Int32 || l.kind == parquet.Int64 {
			numbers, _, err := readDelta(data, n)
			return &integers{numbers, l.kind}, err
		}
	case format.DeltaLengthByteArray:
		if l.kind == parquet.ByteArray {
			lengths, _, rest, err := readLengths(data, n)
			return &sizedBytes{lengths, rest}, err
		}
	case format.DeltaByteArray:
		if l.kind == parquet.ByteArray || l.kind == parquet.FixedLenByteArray {
			return newPrefixedBytes(data, n, l, maxBytes)
		}
	}
	return nil, fmt.Errorf("the encoding %s of %s is not supported", encoding, l.kind)
}

// fixed returns the size of a value of a kind, and the function that decodes it; 0: the kind has
// no size in bytes.
func (l *leaf) fixed() (convert func(b []byte) parquet.Value, width int) {
	little := binary.LittleEndian
	switch l.kind {
	case parquet.Int32:
		return func(b []byte) parquet.Value { return parquet.Int32Value(int32(little.Uint32(b))) }, 4
	case parquet.Int64:
		return func(b []byte) parquet.Value { return parquet.Int64Value(int64(little.Uint64(b))) }, 8
	case parquet.Int96:
		return func(b []byte) parquet.Value {
			return parquet.Int96Value(deprecated.Int96{little.Uint32(b), little.Uint32(b[4:]), little.Uint32(b[8:])})
		}, 12
	case parquet.Float:
		return func(b []byte) parquet.Value { return parquet.FloatValue(math.Float32frombits(little.Uint32(b))) }, 4
	case parquet.Double:
		return func(b []byte) parquet.Value { return parquet.DoubleValue(math.Float64frombits(little.Uint64(b))) }, 8
	case parquet.FixedLenByteArray:
		return parquet.FixedLenByteArrayValue, l.length
	}
	return nil, 0
}

type plainFixed struct {
	data    []byte
	width   int
	convert func([]byte) parquet.Value
}

func (p *plainFixed) read(dst []parquet.Value) error {
	if len(p.data)/p.width < len(dst) {
		return errShort
	}
	for i := range dst {
		dst[i] = p.convert(p.data[:p.width:p.width])
		p.data = p.data[p.width:]
	}
	return nil
}

type plainBooleans struct {
	data []byte
	bit  uint
}

func (p *plainBooleans) read(dst []parquet.Value) error {
	if p.bit+uint(len(dst)) > 8*uint(len(p.data)) {
		return errShort
	}
	for i := range dst {
		dst[i] = parquet.BooleanValue(bitsAt(p.data, p.bit, 1) == 1)
		p.bit++
	}
	return nil
}

type plainBytes struct{ data []byte }

func (p *plainBytes) read(dst []parquet.Value) error {
	for i := range dst {
		if len(p.data) < 4 {
			return errShort
		}
		size := uint64(binary.LittleEndian.Uint32(p.data))
		p.data = p.data[4:]
		if size > uint64(len(p.data)) {
			return errShort
		}
		dst[i] = parquet.ByteArrayValue(p.data[:size:size])
		p.data = p.data[size:]
	}
	return nil
}

// booleanRuns are booleans in the encoding RLE, behind the size of the runs.
type booleanRuns struct {
	*hybrid
	bits [valuesAhead]uint32
}

func newBooleanRuns(data []byte) (*booleanRuns, error) {
	runs, _, err := sizedRuns(data)
	if err != nil {
		return nil, err
	}
	h, err := newHybrid(runs, 1)
	return &booleanRuns{hybrid: h}, err
}

func (b *booleanRuns) read(dst []parquet.Value) error {
	for len(dst) > 0 {
		some := b.bits[:min(len(dst), len(b.bits))]
		if err := b.hybrid.read(some); err != nil {
			return err
		}
		for i, bit := range some {
			dst[i] = parquet.BooleanValue(bit == 1)
		}
		dst = dst[len(some):]
	}
	return nil
}

// sizedRuns returns the runs behind their size, and the data behind them.
func sizedRuns(data []byte) (runs, rest []byte, err error) {
	if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
		return nil, nil, errShort
	}
	size := binary.LittleEndian.Uint32(data)
	return data[4:][:size], data[4:][size:], nil
}

// indexes are values of a dictionary.
type indexes struct {
	*hybrid
	dictionary []parquet.Value
	numbers    [valuesAhead]uint32
}

func newIndexes(data []byte, dictionary []parquet.Value) (*indexes, error) {
	switch {
	case dictionary == nil:
		return nil, fmt.Errorf("it has indexes without a dictionary: %w", parquet.ErrCorrupted)
	case len(data) == 0:
		return nil, errShort
	}
	h, err := newHybrid(data[1:], uint(data[0]))
	return &indexes{hybrid: h, dictionary: dictionary}, err
}

func (x *indexes) read(dst []parquet.Value) error {
	for len(dst) > 0 {
		some := x.numbers[:min(len(dst), len(x.numbers))]
		if err := x.hybrid.read(some); err != nil {
			return err
		}
		for i, index := range some {
			if uint64(index) >= uint64(len(x.dictionary)) {
				return fmt.Errorf("index %d of a dictionary of %d values: %w", index, len(x.dictionary), parquet.ErrCorrupted)
			}
			dst[i] = x.dictionary[index]
		}
		dst = dst[len(some):]
	}
	return nil
}

// split are values in the encoding BYTE_STREAM_SPLIT: the first bytes of all, the second ones,
// and so on.
type split struct {
	data    []byte
	n, at   int
	width   int
	convert func([]byte) parquet.Value
}

func newSplit(data []byte, n, width int, convert func([]byte) parquet.Value) (*split, error) {
	if len(data)/width != n || len(data)%width != 0 {
		return nil, fmt.Errorf("%d bytes of BYTE_STREAM_SPLIT are not %d values of %d bytes: %w", len(data), n, width, parquet.ErrCorrupted)
	}
	return &split{data, n, 0, width, convert}, nil
}

func (s *split) read(dst []parquet.Value) error {
	if s.n-s.at < len(dst) {
		return errShort
	}
	gathered := make([]byte, len(dst)*s.width) // values of bytes keep it
	for i := range dst {
		one := gathered[i*s.width:][:s.width:s.width]
		for j := range one {
			one[j] = s.data[j*s.n+s.at]
		}
		dst[i] = s.convert(one)
		s.at++
	}
	return nil
}

// integers are decoded numbers.
type integers struct {
	numbers []int64
	kind    parquet.Kind
}

func (n *integers) read(dst []parquet.Value) error {
	if len(n.numbers) < len(dst) {
		return errShort
	}
	for i := range dst {
		if n.kind == parquet.Int32 {
			dst[i] = parquet.Int32Value(int32(n.numbers[i]))
		} else {
			dst[i] = parquet.Int64Value(n.numbers[i])
		}
	}
	n.numbers = n.numbers[len(dst):]
	return nil
}

// sizedBytes are byte arrays behind the lengths of all.
type sizedBytes struct {
	lengths []int64
	data    []byte
}

func (s *sizedBytes) read(dst []parquet.Value) error {
	if len(s.lengths) < len(dst) {
		return errShort
	}
	for i := range dst {
		size := s.lengths[i]
		if size > int64(len(s.data)) {
			return errShort
		}
		dst[i] = parquet.ByteArrayValue(s.data[:size:size])
		s.data = s.data[size:]
	}
	s.lengths = s.lengths[len(dst):]
	return nil
}

// prefixedBytes are byte arrays that begin with bytes of the one before.
type prefixedBytes struct {
	prefixes []int64
	suffixes sizedBytes
	previous []byte
	leaf     *leaf
}

func newPrefixedBytes(data []byte, n int, l *leaf, maxBytes int64) (*prefixedBytes, error) {
	prefixes, sum, rest, err := readLengths(data, n)
	if err != nil {
		return nil, err
	}
	lengths, _, rest, err := readLengths(rest, n)
	if err != nil {
		return nil, err
	}
	if sum += uint64(len(rest)); sum > uint64(maxBytes) {
		return nil, fmt.Errorf("the values of a page have %d bytes, more than the limit of %d; raise the limit, or write smaller pages", sum, maxBytes)
	}
	return &prefixedBytes{prefixes, sizedBytes{lengths, rest}, nil, l}, nil
}

func (p *prefixedBytes) read(dst []parquet.Value) error {
	if err := p.suffixes.read(dst); err != nil {
		return err
	}
	for i := range dst {
		prefix, suffix := p.prefixes[i], dst[i].ByteArray()
		if prefix > int64(len(p.previous)) {
			return fmt.Errorf("a prefix of %d bytes of a value of %d: %w", prefix, len(p.previous), parquet.ErrCorrupted)
		}
		if prefix > 0 {
			suffix = append(append(make([]byte, 0, int(prefix)+len(suffix)), p.previous[:prefix]...), suffix...)
		}
		p.previous = suffix
		if dst[i] = parquet.ByteArrayValue(suffix); p.leaf.kind == parquet.FixedLenByteArray {
			if len(suffix) != p.leaf.length {
				return fmt.Errorf("a value of %d bytes, not %d: %w", len(suffix), p.leaf.length, parquet.ErrCorrupted)
			}
			dst[i] = parquet.FixedLenByteArrayValue(suffix)
		}
	}
	p.prefixes = p.prefixes[len(dst):]
	return nil
}
