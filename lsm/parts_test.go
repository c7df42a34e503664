package lsm

import "encoding/binary"

// Sizes of docs/format/table.md.
const (
	tableHeaderSize = 48
	tableFooterSize = 96
	blockHeaderSize = 20
	blockSize       = 4 << 10 // at which a block is closed, and of a page
)

// tableParts are the offsets of the parts of a table.
type tableParts struct {
	blocks                            []int
	index, filter, properties, footer int // where the part before each ends
}

// partsOf decodes the footer and the index of a table, as docs/format/table.md describes
// them.
func partsOf(table []byte) tableParts {
	number := func(at int) int { return int(binary.LittleEndian.Uint64(table[at:])) }
	footer := len(table) - tableFooterSize
	p := tableParts{index: number(footer + 16), filter: number(footer + 40), properties: number(footer + 64), footer: footer}
	for i := range binary.LittleEndian.Uint32(table[p.index:]) {
		p.blocks = append(p.blocks, number(p.index+8+24*int(i)+8))
	}
	return p
}

// block returns the range of a block.
func (p tableParts) block(i int) (start, end int) {
	if i+1 == len(p.blocks) {
		return p.blocks[i], p.index
	}
	return p.blocks[i], p.blocks[i+1]
}
