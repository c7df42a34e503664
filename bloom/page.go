package bloom

import "docstore/internal/prefetch"

// page is an immutable page in memory. Its bits are those of a bloom/v3 filter whose
// number of bits is a power of two, so a location is reduced by a mask.
type page struct {
	words []uint64
	mask  uint64
}

// decodePage decodes b, whose length is a power of two and at least wordBytes.
func decodePage(b []byte) *page {
	words := make([]uint64, len(b)/wordBytes)
	for i := range words {
		words[i] = order.Uint64(b[i*wordBytes:])
	}
	return &page{words: words, mask: uint64(len(words))*64 - 1}
}

// appendWords appends words in the encoding of a page.
func appendWords(dst []byte, words []uint64) []byte {
	for _, w := range words {
		dst = order.AppendUint64(dst, w)
	}
	return dst
}

// setBits adds a key to a page. bloom/v3's Add takes four times as long because it
// allocates a slice and divides instead of masking.
func setBits(words []uint64, h Hash, hashes uint64) {
	mask := uint64(len(words))*64 - 1
	i := uint64(0)
	for ; i+4 <= hashes; i += 4 { // location for i mod 4 = 0, 1, 2 and 3
		setBit(words, (h.h1+i*h.h3)&mask)
		setBit(words, (h.h2+(i+1)*h.h4)&mask)
		setBit(words, (h.h1+(i+2)*h.h4)&mask)
		setBit(words, (h.h2+(i+3)*h.h3)&mask)
	}
	for ; i < hashes; i++ {
		setBit(words, h.location(i)&mask)
	}
}

func setBit(words []uint64, at uint64) { words[at/64] |= 1 << (at % 64) }

// mayContain reads all bits before it decides: the cache misses overlap, and there is
// one unpredictable branch instead of one per bit.
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

// fold ORs the upper half of a page into the lower half and returns it: a filter of the
// same keys with half the bits.
func fold(words []uint64) []uint64 {
	half := len(words) / 2
	for i := range half {
		words[i] |= words[half+i]
	}
	return words[:half]
}
