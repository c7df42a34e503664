package lsm

import (
	"math"

	"docstore/internal/prefetch"
)

// What is fetched of a block ahead, at most. Larger keys and values are read so
// long that it would be no gain.
const (
	prefetchedKeyBytes   = 8 * prefetch.LineBytes
	prefetchedValueBytes = 16 * prefetch.LineBytes
)

// meanEntry is the mean of a table's entries. Where they are all alike, it tells what
// lies where in a block before the block is there.
type meanEntry struct {
	key, value, bytes float64
	// slack is how many values a key's is likely to lie away, at most, from where it
	// would be if keys were spread evenly: half the root of the entries of a block.
	slack float64
	large bool // more values would have to be fetched than it is worth
}

func newMeanEntry(f tableFacts) meanEntry {
	n := float64(max(1, f.entries))
	m := meanEntry{key: float64(f.keyBytes) / n, value: float64(f.valueBytes) / n}
	m.bytes = max(1, m.key+m.value)
	m.slack = math.Sqrt(blockTargetBytes/m.bytes) / 2
	m.large = (2*m.slack+1)*m.value > prefetchedValueBytes
	return m
}

// prefetchKeys has fetched what a search of a block reads first: of an even one, the
// keys.
func (r *tableReader) prefetchKeys(i int) {
	start, end := r.blockRange(i)
	keys := uint64(float64(end-start) * r.mean.key / r.mean.bytes)
	prefetch.Bytes(r.data[start:min(start+blockHeaderBytes+min(keys, prefetchedKeyBytes), end)])
}

// prefetchValue has fetched where the value of a key is likely to lie in an even
// block: a key is about as far into it as it is between the last keys of the block
// before and of this.
func (r *tableReader) prefetchValue(i int, prefix uint64) {
	m := &r.mean
	if m.large {
		return
	}
	before := r.least
	if i > 0 {
		before = r.prefix(i - 1)
	}
	start, end := r.blockRange(i)
	count := math.Floor(float64(end-start-blockHeaderBytes) / m.bytes) // padding is less than an entry
	at := count * float64(prefix-before) / float64(r.prefix(i)-before+1)
	values := float64(start+blockHeaderBytes) + count*m.key
	from := max(values+(at-m.slack)*m.value, float64(start))
	to := min(values+(at+m.slack+1)*m.value, float64(end))
	if from < to {
		prefetch.Bytes(r.data[uint64(from):uint64(to)])
	}
}
