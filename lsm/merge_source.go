package lsm

import (
	"bytes"
	"cmp"
	"slices"
)

// entrySource returns entries in key order, each key once, including tombstones. Tables
// are written from it.
type entrySource interface {
	// next appends the next entries to dst, some at a time, none at the end. They are
	// valid until the next call.
	next(dst []entry) ([]entry, error)
}

// tableSource returns the entries of a table from verified copies of its blocks, so a
// merge never writes damaged bytes under a valid checksum.
type tableSource struct {
	r     *tableReader
	block int // the next
	copy  blockCopy
}

func (s *tableSource) next(dst []entry) ([]entry, error) {
	if s.block == s.r.blocks {
		return dst, nil
	}
	if err := s.r.guard(func() error { return s.r.read(&s.copy, s.block) }); err != nil {
		return dst, err
	}
	s.block++
	return s.copy.appendEntries(dst), nil
}

// mergedSource merges several sources. The entry of the newest source hides the others
// with the same key.
type mergedSource struct {
	sources []mergeCursor // newest first
	// order lists the sources that have an entry, by key and then age, newest first.
	// There are few sources, so a cursor that advances is inserted by linear search.
	order  []*mergeCursor
	used   []*mergeCursor // cursors without remaining entries
	shared int            // length of the prefix common to all keys
}

// mergeCursor is the position in a source.
type mergeCursor struct {
	entrySource
	age     int // 0 is the newest
	entries []entry
	at      int
	prefix  uint64 // of the key, after the common prefix
	bytes   uint64 // size of the keys and values returned
}

// mergeBatch is the maximum number of entries per call of mergedSource.next.
const mergeBatch = 64

// newMergedSource merges sources, newest first, whose keys share a prefix of the given
// length.
func newMergedSource(sources []entrySource, shared int) *mergedSource {
	m := &mergedSource{sources: make([]mergeCursor, len(sources)), shared: shared}
	for i, source := range sources {
		m.sources[i] = mergeCursor{entrySource: source, age: i}
		m.used = append(m.used, &m.sources[i])
	}
	return m
}

func (m *mergedSource) next(dst []entry) ([]entry, error) {
	if err := m.refill(); err != nil {
		return dst, err
	}
	// An exhausted cursor ends the batch: refilling it would overwrite the entries
	// returned.
	for n := 0; n < mergeBatch && len(m.order) > 0 && len(m.used) == 0; n++ {
		c := m.order[0]
		e, prefix := c.entries[c.at], c.prefix
		c.bytes += uint64(len(e.key) + len(e.value))
		dst = append(dst, e)
		m.advance()
		for len(m.order) > 0 && m.order[0].holds(prefix, e.key) { // hidden
			m.advance()
		}
	}
	return dst, nil
}

// refill loads the next entries of exhausted cursors.
func (m *mergedSource) refill() (err error) {
	for _, c := range m.used {
		if c.entries, err = c.next(c.entries[:0]); err != nil {
			return err
		}
		if len(c.entries) > 0 {
			c.at, c.prefix = 0, keyPrefix(c.entries[0].key[m.shared:])
			m.order = append(m.order, c)
		}
	}
	if len(m.used) > 0 {
		slices.SortFunc(m.order, (*mergeCursor).compare)
		m.used = m.used[:0]
	}
	return nil
}

// newestShare returns the newest source's fraction of the bytes returned.
func (m *mergedSource) newestShare() float64 {
	all := uint64(0)
	for i := range m.sources {
		all += m.sources[i].bytes
	}
	return float64(m.sources[0].bytes) / float64(max(1, all))
}

// advance advances the first cursor.
func (m *mergedSource) advance() {
	c := m.order[0]
	if c.at++; c.at == len(c.entries) {
		m.order = slices.Delete(m.order, 0, 1)
		m.used = append(m.used, c)
		return
	}
	c.prefix = keyPrefix(c.entries[c.at].key[m.shared:])
	i := 1
	for ; i < len(m.order) && m.order[i].compare(c) < 0; i++ {
		m.order[i-1] = m.order[i]
	}
	m.order[i-1] = c
}

func (c *mergeCursor) key() []byte { return c.entries[c.at].key }

// holds reports whether the cursor is at the given key.
func (c *mergeCursor) holds(prefix uint64, key []byte) bool {
	return c.prefix == prefix && bytes.Equal(c.key(), key)
}

// compare orders cursors by key, then age.
func (c *mergeCursor) compare(other *mergeCursor) int {
	switch {
	case c.prefix < other.prefix:
		return -1
	case c.prefix > other.prefix:
		return 1
	}
	return cmp.Or(bytes.Compare(c.key(), other.key()), cmp.Compare(c.age, other.age))
}
