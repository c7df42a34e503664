package bloom

import "docstore/internal/prefetch"

// page is a page in memory. It never changes. Its bits are those of a filter of
// bloom/v3, whose number of bits is a power of two here: a location modulo that
// number is the location under a mask.
type page struct {
	words []uint64
	mask  uint64
}

// decodePage returns the page with the given bytes, whose number is a power of
// two and at least wordBytes.
func decodePage(b []byte) *page {
	words := make([]uint64, len(b)/wordBytes)
	for i := range words {
		words[i] = order.Uint64(b[i*wordBytes:])
	}
	return &page{words: words, mask: uint64(len(words))*64 - 1}
}

// appendWords appends words as they lie in a page.
func appendWords(dst []byte, words []uint64) []byte {
	for _, w := range words {
		dst = order.AppendUint64(dst, w)
	}
	return dst
}

// setBits puts a key into the page with the given words. It is Add of bloom/v3,
// which takes four times as long because it makes a slice of the numbers and
// divides where a mask does.
func setBits(words []uint64, h Hash, hashes uint64) {
	mask := uint64(len(words))*64 - 1
	for i := range hashes {
		at := h.location(i) & mask
		words[at/64] |= 1 << (at % 64)
	}
}

// mayContain looks at all bits before it decides: they are fetched side by side,
// and the processor has one branch to foresee, not one for each bit.
func (p *page) mayContain(h Hash, hashes uint64) bool {
	missing := uint64(0)
	for i := range hashes {
		at := h.location(i) & p.mask
		missing |= ^p.words[at/64] >> (at % 64)
	}
	return missing&1 == 0
}

func (p *page) prefetch(h Hash, hashes uint64) {
	for i := range hashes {
		prefetch.Of(&p.words[(h.location(i)&p.mask)/64])
	}
}

// fold lays the upper half of a page over the lower one and returns that: it is
// the filter of the same keys in half the bits.
func fold(words []uint64) []uint64 {
	half := len(words) / 2
	for i := range half {
		words[i] |= words[half+i]
	}
	return words[:half]
}
