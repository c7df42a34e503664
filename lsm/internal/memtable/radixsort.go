package memtable

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	// radixMinimum is the minimum number of nodes for which radix sort is faster than
	// comparison sort.
	radixMinimum = 256
	// maxDigitBits bounds the number of buckets of a pass.
	maxDigitBits = 11
)

// sortByPrefix sorts nodes by prefix, in any order among equal ones. Two radix passes
// sort by the highest differing bits: log2(nodes) and a few more, so that few random
// keys remain equal; those are sorted by comparison.
func sortByPrefix(nodes []orderedNode) {
	if len(nodes) < radixMinimum {
		sortFew(nodes)
		return
	}
	sortMany(nodes, make([]orderedNode, len(nodes)))
}

func sortFew(nodes []orderedNode) {
	slices.SortFunc(nodes, func(a, b orderedNode) int { return cmp.Compare(a.prefix, b.prefix) })
}

// sortMany needs spare to be as long as nodes.
func sortMany(nodes, spare []orderedNode) {
	some, all := uint64(0), ^uint64(0)
	for i := range nodes {
		some |= nodes[i].prefix
		all &= nodes[i].prefix
	}
	top := bits.Len64(some &^ all) // prefixes are equal above it
	if top == 0 {
		return
	}
	digit := min(maxDigitBits, (bits.Len(uint(len(nodes)))+4)/2, (top+1)/2)
	shift := max(0, top-2*digit)
	sortDigit(spare, nodes, shift, digit)
	sortDigit(nodes, spare, shift+digit, digit)
	if shift == 0 {
		return
	}
	for begin := 0; begin < len(nodes); {
		end := begin + 1
		for end < len(nodes) && nodes[end].prefix>>shift == nodes[begin].prefix>>shift {
			end++
		}
		switch equal := nodes[begin:end]; {
		case len(equal) >= radixMinimum:
			sortMany(equal, spare[:len(equal)])
		case len(equal) > 1:
			sortFew(equal)
		}
		begin = end
	}
}

// sortDigit is a stable counting sort of nodes into dst by some bits of their prefixes.
func sortDigit(dst, nodes []orderedNode, shift, digit int) {
	var places [1 << maxDigitBits]uint32
	mask := uint64(1)<<digit - 1
	for i := range nodes {
		places[nodes[i].prefix>>shift&mask]++
	}
	at := uint32(0)
	for i, n := range places[:mask+1] {
		places[i] = at
		at += n
	}
	for _, n := range nodes {
		place := &places[n.prefix>>shift&mask]
		dst[*place] = n
		*place++
	}
}
