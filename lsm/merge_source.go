package lsm

import (
	"bytes"
	"cmp"
	"slices"
)

// entrySource hands out entries in the order of their keys, each key once, tombstones
// too. It is what tables are made of.
type entrySource interface {
	// next appends the next entries to dst, some at a time, none at the end. They are
	// valid until the next call.
	next(dst []entry) ([]entry, error)
}

// tableSource hands out the entries of a table, block by block in a verified copy: what
// a merge writes has a valid checksum of its own.
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

// mergedSource makes one sequence of several sources. Where they hold the same key, the
// entry of the newest hides the others.
type mergedSource struct {
	sources []mergeCursor // newest first
	// order lists the sources that are on an entry, in the order of these entries' keys,
	// and the newest first among equal ones. There are few: one that is moved on is put
	// to its place by comparing it with one after the other.
	order  []*mergeCursor
	used   []*mergeCursor // those whose entries have all been handed out
	shared int            // bytes that all keys of all sources begin with
}

// mergeCursor is where a source is.
type mergeCursor struct {
	entrySource
	age     int // 0 is the newest
	entries []entry
	at      int
	prefix  uint64 // of the key, behind what all keys share
	bytes   uint64 // of keys and values that were handed out
}

// mergeBatch is how many entries a mergedSource hands out at a time, at most.
const mergeBatch = 64

// newMergedSource merges sources given newest first, whose keys all begin with the same
// bytes, so many of them.
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
	// A cursor without entries ends the batch: its next ones would take the place of
	// those that were handed out.
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

// refill gets the next entries of the cursors that have none left.
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

// newestShare is the newest source's part of the keys and values handed out.
func (m *mergedSource) newestShare() float64 {
	all := uint64(0)
	for i := range m.sources {
		all += m.sources[i].bytes
	}
	return float64(m.sources[0].bytes) / float64(max(1, all))
}

// advance moves the first cursor on.
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

// holds tells whether a cursor is on a key.
func (c *mergeCursor) holds(prefix uint64, key []byte) bool {
	return c.prefix == prefix && bytes.Equal(c.key(), key)
}

// compare is the order of cursors.
func (c *mergeCursor) compare(other *mergeCursor) int {
	switch {
	case c.prefix < other.prefix:
		return -1
	case c.prefix > other.prefix:
		return 1
	}
	return cmp.Or(bytes.Compare(c.key(), other.key()), cmp.Compare(c.age, other.age))
}
