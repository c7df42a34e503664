package lsm

import (
	"encoding/binary"
	"fmt"
	"testing"

	"docstore/internal/offheap"
	"docstore/internal/prefetch"
)

// BenchmarkMemory tells what a look-up cannot be quicker than: it reads some lines of a
// page at random, fetched side by side, and which page follows from what was read before.
// A hit reads one page so, of which keys and value take some 17 lines.
func BenchmarkMemory(b *testing.B) {
	const size = 256 << 20
	for _, huge := range []bool{false, true} {
		small := size
		if huge {
			small = 0
		}
		region := offheap.New(size, small)
		memory := region.Bytes()
		for at := 0; at < size; at += pageBytes {
			memory[at] = 1 // each page is there, and is not the page of zeros
		}
		for _, lines := range []int{1, 4, 17} {
			b.Run(fmt.Sprintf("huge=%v/lines=%d", huge, lines), func(b *testing.B) {
				at := uint64(1)
				for b.Loop() {
					at = (at ^ at>>33) * 0xff51afd7ed558ccd
					page := memory[at>>32%(size/pageBytes)*pageBytes:]
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
