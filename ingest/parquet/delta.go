package parquet

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/parquet-go/parquet-go"
)

// errDelta: the data end before the values, or state impossible sizes.
var errDelta = fmt.Errorf("the data of DELTA_BINARY_PACKED are damaged: %w", parquet.ErrCorrupted)

// readDelta decodes n integers, at least one, of the encoding DELTA_BINARY_PACKED, and returns the
// data behind them. Differences are those of 64 bits, modulo 2^64.
//
//	uvarint   values in a block      uvarint   miniblocks in a block
//	uvarint   values                 zigzag    the first value
//	blocks of
//	  zigzag   the least difference  bytes     widths of the miniblocks
//	  differences to the least one, bit-packed
func readDelta(data []byte, n int) (values []int64, rest []byte, err error) {
	header := [3]uint64{}
	for i := range header {
		number, size := binary.Uvarint(data)
		if size <= 0 {
			return nil, nil, errDelta
		}
		header[i], data = number, data[size:]
	}
	value, size := binary.Varint(data)
	block, miniblocks := header[0], header[1]
	switch {
	case size <= 0 || miniblocks == 0 || block%8 != 0 || block > 1<<24 || block/8%miniblocks != 0:
		return nil, nil, errDelta
	case header[2] != uint64(n):
		return nil, nil, fmt.Errorf("DELTA_BINARY_PACKED has %d values, not %d: %w", header[2], n, parquet.ErrCorrupted)
	}
	data = data[size:]
	values = append(make([]int64, 0, n), value)
	for len(values) < n {
		least, size := binary.Varint(data)
		if size <= 0 || uint64(len(data)-size) < miniblocks {
			return nil, nil, errDelta
		}
		widths := data[size:][:miniblocks]
		data = data[size:][miniblocks:]
		for _, width := range widths {
			if len(values) == n {
				break // the widths of missing miniblocks have any value
			}
			inBlock := int(block / miniblocks)
			count := min(inBlock, n-len(values))
			bytes := min(inBlock/8*int(width), len(data)) // some programs leave out the padding
			if width > 64 || count*int(width) > 8*bytes {
				return nil, nil, errDelta
			}
			for i := range count {
				value += least + int64(wideBitsAt(data[:bytes], uint(i)*uint(width), uint(width)))
				values = append(values, value)
			}
			data = data[bytes:]
		}
	}
	return values, data, nil
}

// wideBitsAt returns width bits, at most 64, from a bit on.
func wideBitsAt(data []byte, bit, width uint) uint64 {
	if width <= 32 {
		return uint64(bitsAt(data, bit, width))
	}
	return uint64(bitsAt(data, bit, 32)) | uint64(bitsAt(data, bit+32, width-32))<<32
}

// readLengths decodes n lengths of values, which are not negative, and returns their sum.
func readLengths(data []byte, n int) (lengths []int64, sum uint64, rest []byte, err error) {
	lengths, rest, err = readDelta(data, n)
	for _, length := range lengths {
		var carry uint64
		if sum, carry = bits.Add64(sum, uint64(length), 0); length < 0 || carry != 0 {
			return nil, 0, nil, fmt.Errorf("a value of %d bytes: %w", length, parquet.ErrCorrupted)
		}
	}
	return lengths, sum, rest, err
}
