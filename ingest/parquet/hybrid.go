package parquet

import (
	"encoding/binary"
	"fmt"

	"github.com/parquet-go/parquet-go"
)

// hybrid decodes numbers of width bits in the encoding RLE: runs of a repeated number, and runs
// of groups of eight that are bit-packed.
//
//	uvarint 2n     n times the number in (width+7)/8 bytes
//	uvarint 2n+1   8n numbers of width bits, from the least significant bit on
type hybrid struct {
	data  []byte
	width uint

	left     int    // numbers of the run
	packed   []byte // of a bit-packed run
	bit      uint   // of the next number in packed
	repeated uint32 // of a repeated run
}

// maxHybridWidth is the width of the largest index of a dictionary.
const maxHybridWidth = 32

func newHybrid(data []byte, width uint) (*hybrid, error) {
	if width > maxHybridWidth {
		return nil, fmt.Errorf("numbers of %d bits: %w", width, parquet.ErrCorrupted)
	}
	return &hybrid{data: data, width: width}, nil
}

// read reads as many numbers as dst has.
func (h *hybrid) read(dst []uint32) error {
	if h.width == 0 {
		clear(dst) // some programs write no runs
		return nil
	}
	for len(dst) > 0 {
		if h.left == 0 {
			if err := h.nextRun(); err != nil {
				return fmt.Errorf("%w: %d more numbers are needed", err, len(dst))
			}
			continue
		}
		n := min(h.left, len(dst))
		for i := range n {
			if h.packed == nil {
				dst[i] = h.repeated
				continue
			}
			dst[i] = bitsAt(h.packed, h.bit, h.width)
			h.bit += h.width
		}
		h.left -= n
		dst = dst[n:]
	}
	return nil
}

func (h *hybrid) nextRun() error {
	header, n := binary.Uvarint(h.data)
	if n <= 0 || header > 1<<32-1 {
		return fmt.Errorf("the runs end too early: %w", parquet.ErrCorrupted)
	}
	h.data = h.data[n:]
	count, bytes := header>>1, uint64(h.width+7)/8
	if header&1 == 1 {
		bytes = count * uint64(h.width)
		count *= 8
		// A writer may leave out the padding of the last group.
		if left := uint64(len(h.data)); bytes > left && left > bytes-uint64(h.width) {
			bytes, count = left, left*8/uint64(h.width)
		}
	}
	if bytes > uint64(len(h.data)) {
		return fmt.Errorf("a run of %d bytes, where %d follow: %w", bytes, len(h.data), parquet.ErrCorrupted)
	}
	run := h.data[:bytes]
	h.data, h.left, h.packed, h.bit = h.data[bytes:], int(count), nil, 0
	if header&1 == 1 {
		h.packed = run
		return nil
	}
	var repeated [8]byte
	copy(repeated[:], run)
	value := binary.LittleEndian.Uint64(repeated[:])
	if value >= 1<<h.width {
		return fmt.Errorf("a number of more than %d bits: %w", h.width, parquet.ErrCorrupted)
	}
	h.repeated = uint32(value)
	return nil
}

// bitsAt returns width bits, at most 32, from a bit on.
func bitsAt(data []byte, bit, width uint) uint32 {
	from := bit / 8
	var word uint64
	if int(from)+8 <= len(data) {
		word = binary.LittleEndian.Uint64(data[from:])
	} else {
		var last [8]byte
		copy(last[:], data[from:])
		word = binary.LittleEndian.Uint64(last[:])
	}
	return uint32(word >> (bit % 8) & (1<<width - 1))
}
