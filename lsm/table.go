package lsm

import (
	"io"
	"log/slog"
	"sync/atomic"

	"docstore/bloom"
	"docstore/internal/invariants"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// table is a table of the store, shared by the views that list it.
type table struct {
	*tableReader
	filter *bloom.Filter // nil if it could not be opened: every key may exist then
	refs   atomic.Int32  // views that list the table
}

// openTable opens a table for lookups.
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

// get looks up a key. It has up to three dependent cache misses: the filter, a record
// of the index, and the block, whose lines are prefetched together. Prefetching the
// record before the filter's answer made hits 2 % faster and misses, which do not need
// it, 19 % slower.
func (t *table) get(h bloom.Hash, key []byte) (e kv.Entry, found bool, err error) {
	prefix, covered := t.place(key)
	if !covered {
		return kv.Entry{}, false, nil
	}
	var probe bloom.Probe
	if t.filter != nil {
		if probe = t.filter.Probe(key); !probe.MayContain(h) {
			return kv.Entry{}, false, nil
		}
	}
	i := t.find(prefix, key)
	t.prefetchKeys(i)
	t.prefetchValue(i, prefix)
	if e, found, err = t.search(i, key); !found && err == nil && t.filter != nil {
		probe.Missed()
	}
	return e, found, err
}

// getVerified is get from a verified copy.
func (t *table) getVerified(h bloom.Hash, key []byte) (e kv.Entry, found bool, err error) {
	prefix, covered := t.place(key)
	if !covered || t.filter != nil && !t.filter.MayContain(h, key) {
		return kv.Entry{}, false, nil
	}
	if e, found, err = t.searchCopy(t.find(prefix, key), key); !found && err == nil && t.filter != nil {
		t.filter.Missed(key)
	}
	return e, found, err
}
