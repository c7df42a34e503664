package lsm

import (
	"encoding/binary"
	"fmt"
	"testing"

	"docstore/internal/offheap"
	"docstore/internal/prefetch"
)

// BenchmarkMemory measures a lower bound for a lookup: it reads some random lines of a
// page, prefetched together; the next page depends on the data read. A hit reads a page
// in this way, where keys and value take about 17 lines.
func BenchmarkMemory(b *testing.B) {
	const size = 256 << 20
	for _, huge := range []bool{false, true} {
		small := size
		if huge {
			small = 0
		}
		region := offheap.New(size, small)
		memory := region.Bytes()
		for at := 0; at < size; at += blockSize {
			memory[at] = 1 // allocates the page
		}
		for _, lines := range []int{1, 4, 17} {
			b.Run(fmt.Sprintf("huge=%v/lines=%d", huge, lines), func(b *testing.B) {
				at := uint64(1)
				for b.Loop() {
					at = (at ^ at>>33) * 0xff51afd7ed558ccd
					page := memory[at>>32%(size/blockSize)*blockSize:]
					prefetch.Bytes(page[:lines*prefetch.LineBytes])
					for line := range lines {
						at += binary.LittleEndian.Uint64(page[line*prefetch.LineBytes:])
					}
				}
			})
		}
		region.Release()
	}
}
