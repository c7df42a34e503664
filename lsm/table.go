package lsm

import (
	"io"
	"log/slog"
	"math"
	"sync/atomic"

	"docstore/bloom"
	"docstore/internal/invariants"
	"docstore/internal/prefetch"
	"docstore/internal/vfs"
)

// table is a table of the store, shared by the views that list it.
type table struct {
	*tableReader
	filter *bloom.Filter // nil if it could not be opened: then every key may be there
	refs   atomic.Int32  // views that list the table
}

// openTable opens a table for look-ups.
func openTable(env *environment, facts tableFacts) (*table, error) {
	r, err := openTableReader(env, facts, vfs.AdviseRandom)
	if err != nil {
		return nil, err
	}
	t := &table{tableReader: r}
	if t.filter, err = r.openFilter(); err != nil {
		env.logger.Warn("a table is read without its filter", slog.String("table", r.path), slog.Any("error", err))
	}
	return t, nil
}

func (r *tableReader) openFilter() (*bloom.Filter, error) {
	s := r.footer.filter
	return bloom.Open(r.path, io.NewSectionReader(guardedReader{r.data}, int64(s.offset), int64(s.length)))
}

func (t *table) ref() { t.refs.Add(1) }

func (t *table) unref() {
	left := t.refs.Add(-1)
	invariants.References(int64(left), "a table")
	if left == 0 {
		t.close()
	}
}

// get looks up a key. It waits for memory twice: for filter and index, and for the
// block. What it needs of each the processor fetches side by side.
func (t *table) get(h bloom.Hash, key []byte) (e entry, found bool, err error) {
	if !t.covers(key) {
		return entry{}, false, nil
	}
	i := t.find(key) // before the filter answers: neither has to wait for the other
	if t.filter != nil && !t.filter.MayContain(h, key) {
		return entry{}, false, nil
	}
	t.prefetchKeys(i)
	t.prefetchValue(i, key)
	if e, found, err = t.search(i, key); !found && err == nil {
		t.missed(h, key)
	}
	return e, found, err
}

// missed reports that a search which the filter asked for found nothing.
func (t *table) missed(h bloom.Hash, key []byte) {
	if t.filter != nil {
		t.filter.Missed(h, key)
	}
}

// What is fetched of a block ahead, at most. Larger keys and values are read so
// long that it would be no gain.
const (
	prefetchedKeyBytes   = 8 * prefetch.LineBytes
	prefetchedValueBytes = 16 * prefetch.LineBytes
)

// prefetchKeys has fetched what a search of a block reads first: of an even one, the
// keys, as far as the mean of the table tells.
func (t *table) prefetchKeys(i int) {
	start, end := t.blockRange(i)
	f := &t.facts
	keys := (end - start) * f.keyBytes / (f.keyBytes + f.valueBytes + 1)
	prefetch.Bytes(t.data[start:min(start+blockHeaderBytes+min(keys, prefetchedKeyBytes), end)])
}

// prefetchValue has fetched where the value of a key is likely to lie in an even
// block: keys spread evenly are as far into it as they are between the last keys of
// the block before and of this, give or take half the root of their number.
func (t *table) prefetchValue(i int, key []byte) {
	start, end := t.blockRange(i)
	f := &t.facts
	entry := float64(f.keyBytes+f.valueBytes) / float64(f.entries)
	value := float64(f.valueBytes) / float64(f.entries)
	count := math.Floor(float64(end-start-blockHeaderBytes) / entry) // padding is less than an entry
	slack := math.Sqrt(count) / 2
	if (2*slack+1)*value > prefetchedValueBytes {
		return
	}
	before := t.least
	if i > 0 {
		before = t.prefix(i - 1)
	}
	at := count * float64(keyPrefix(key[t.shared:])-before) / float64(t.prefix(i)-before+1)
	values := float64(start+blockHeaderBytes) + count*(entry-value)
	from := max(values+(at-slack)*value, float64(start))
	to := min(values+(at+slack+1)*value, float64(end))
	if from < to {
		prefetch.Bytes(t.data[uint64(from):uint64(to)])
	}
}
