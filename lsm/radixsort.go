package lsm

import "slices"

// radixMinimum is the number of nodes from which on counting bytes is faster
// than comparing.
const radixMinimum = 256

// sortByPrefix sorts nodes by the prefixes of their keys, those of equal ones in no
// order: byte by byte from the last to the first, passing over bytes that are the
// same in all.
func sortByPrefix(nodes []orderedNode) []orderedNode {
	if len(nodes) < radixMinimum {
		slices.SortFunc(nodes, func(a, b orderedNode) int {
			switch {
			case a.prefix < b.prefix:
				return -1
			case a.prefix > b.prefix:
				return 1
			}
			return 0
		})
		return nodes
	}
	var counts [8][256]uint32
	for i := range nodes {
		p := nodes[i].prefix
		for digit := range counts {
			counts[digit][uint8(p)]++
			p >>= 8
		}
	}
	spare := make([]orderedNode, len(nodes))
	for digit := range counts {
		c, shift := &counts[digit], 8*digit
		if c[uint8(nodes[0].prefix>>shift)] == uint32(len(nodes)) {
			continue
		}
		at := uint32(0)
		for i, n := range c {
			c[i] = at
			at += n
		}
		for _, n := range nodes {
			b := uint8(n.prefix >> shift)
			spare[c[b]] = n
			c[b]++
		}
		nodes, spare = spare, nodes
	}
	return nodes
}
