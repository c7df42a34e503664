package table

import (
	"math"

	"docstore/internal/prefetch"
)

// Maximum prefetch of a block. Larger keys and values take so long to read that
// prefetching gains nothing.
const (
	prefetchedKeyBytes   = 8 * prefetch.LineBytes
	prefetchedValueBytes = 16 * prefetch.LineBytes
)

// meanEntry is the mean size of a table's entries. If all have the same size, it
// predicts the layout of a block before the block is read.
type meanEntry struct {
	key, value, bytes float64
	entry             int // bytes, rounded
	// keyBytes and valueBytes are those of each entry if all have the same size.
	keyBytes, valueBytes uint64
	// slack is the typical distance, in values, of a key from its position with evenly
	// distributed keys: half the square root of the entries of a block.
	slack float64
	large bool // too many values would have to be prefetched
}

func newMeanEntry(f Facts) meanEntry {
	n := float64(max(1, f.Entries))
	m := meanEntry{key: float64(f.KeyBytes) / n, value: float64(f.ValueBytes) / n}
	m.bytes = max(1, m.key+m.value)
	m.entry = int(math.Round(m.bytes))
	m.keyBytes, m.valueBytes = uint64(m.key), uint64(m.value)
	m.slack = math.Sqrt(blockTargetBytes/m.bytes) / 2
	m.large = (2*m.slack+1)*m.value > prefetchedValueBytes
	return m
}

// prefetchUnverified prefetches what the verification of a block reads: its records, the likely
// position of the keys before and at its end, and the block.
func (r *Reader) prefetchUnverified(i int) {
	before := max(i-1, 0)
	prefetch.Bytes(r.records[indexRecordBytes*before : indexRecordBytes*(i+1)])
	keys := min(uint64(before)*r.mean.keyBytes, uint64(len(r.keys)))
	prefetch.Bytes(r.keys[keys:min(keys+2*r.mean.keyBytes, uint64(len(r.keys)))])
	start, end := r.blockRange(i)
	prefetch.Bytes(r.data[start:min(end, start+blockTargetBytes)])
}

// prefetchKeys prefetches what a search of a block reads first: in an even block, the
// keys.
func (r *Reader) prefetchKeys(i int) {
	start, end := r.blockRange(i)
	keys := uint64(float64(end-start) * r.mean.key / r.mean.bytes)
	prefetch.Bytes(r.data[start:min(start+blockHeaderBytes+min(keys, prefetchedKeyBytes), end)])
}

// prefetchValue prefetches the likely position of a key's value in an even block, by
// interpolating the key between the last keys of the previous block and this one.
func (r *Reader) prefetchValue(i int, prefix uint64) {
	m := &r.mean
	if m.large {
		return
	}
	before := uint64(0)
	if i > 0 {
		before = r.words[i-1] &^ r.offsets
	}
	start, end := r.blockRange(i)
	count := math.Floor(float64(end-start-blockHeaderBytes) / m.bytes) // padding is smaller than an entry
	at := count * float64(r.word(prefix)-before) / float64(r.words[i]-before+1)
	values := float64(start+blockHeaderBytes) + count*m.key
	from := max(values+(at-m.slack)*m.value, float64(start))
	to := min(values+(at+m.slack+1)*m.value, float64(end))
	if from < to {
		prefetch.Bytes(r.data[uint64(from):uint64(to)])
	}
}

// prefetchHeader prefetches the header of a block, which a mixed one needs, and the translation of its
// page's address.
func (r *Reader) prefetchHeader(i int) { prefetch.Of(&r.data[r.blockOffset(i)]) }

// prefetchEntry prefetches an entry of the block at start, or the offset of an entry of a mixed
// one. layout is that of the block's tags.
func (r *Reader) prefetchEntry(start uint64, i, layout int) {
	if layout == 0 {
		prefetch.Of(&r.data[min(start+blockHeaderBytes+4*uint64(i), uint64(len(r.data)-1))])
		return
	}
	key, value := r.meanEntryAt(start, i, layout)
	prefetch.Bytes(key)
	prefetch.Bytes(value[:min(len(value), prefetchedValueBytes)])
}
