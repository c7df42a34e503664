package lsm

import (
	"bytes"
	"cmp"
	"slices"
)

// entrySource hands out entries in the order of their keys, each key once, tombstones
// too. It is what tables are made of. What it hands out may lie in a mapping: all calls
// belong inside vfs.Guard.
type entrySource interface {
	// next appends the next entries to dst, some at a time, none at the end. Keys and
	// values stay where they are for as long as what they come from does.
	next(dst []entry) ([]entry, error)
}

// tableSource hands out the entries of a table, block by block.
type tableSource struct {
	r     *tableReader
	block int // the next
}

func (s *tableSource) next(dst []entry) ([]entry, error) {
	if s.block == s.r.blocks {
		return dst, nil
	}
	b, err := s.r.block(s.block)
	if err != nil {
		return dst, err
	}
	s.block++
	return b.appendEntries(dst), nil
}

// mergedSource makes one sequence of several sources. Where they hold the same key, the
// entry of the newest hides the others.
type mergedSource struct {
	sources []mergeCursor // newest first
	// order lists the sources that are on an entry, in the order of these entries' keys,
	// and the newest first among equal ones. There are few: one that is moved on is put
	// to its place by comparing it with one after the other.
	order  []*mergeCursor
	begun  bool
	shared int // bytes that all keys of all sources begin with
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

// mergeBatch is how many entries a mergedSource hands out at a time.
const mergeBatch = 64

// newMergedSource merges sources given newest first, whose keys all begin with the same
// bytes, so many of them.
func newMergedSource(sources []entrySource, shared int) *mergedSource {
	m := &mergedSource{sources: make([]mergeCursor, len(sources)), shared: shared}
	for i, source := range sources {
		m.sources[i] = mergeCursor{entrySource: source, age: i}
	}
	return m
}

func (m *mergedSource) next(dst []entry) ([]entry, error) {
	if !m.begun {
		m.begun = true
		for i := range m.sources {
			c := &m.sources[i]
			found, err := m.fill(c)
			if err != nil {
				return dst, err
			}
			if found {
				m.order = append(m.order, c)
				slices.SortFunc(m.order, func(a, b *mergeCursor) int { return a.compare(b) })
			}
		}
	}
	for range mergeBatch {
		if len(m.order) == 0 {
			break
		}
		c := m.order[0]
		e, prefix := c.entries[c.at], c.prefix
		c.bytes += uint64(len(e.key) + len(e.value))
		dst = append(dst, e)
		if err := m.advance(); err != nil {
			return dst, err
		}
		for len(m.order) > 0 && m.order[0].holds(prefix, e.key) { // hidden
			if err := m.advance(); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
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
func (m *mergedSource) advance() error {
	c := m.order[0]
	if c.at++; c.at < len(c.entries) {
		c.prefix = keyPrefix(c.entries[c.at].key[m.shared:])
	} else if found, err := m.fill(c); err != nil || !found {
		m.order = m.order[1:]
		return err
	}
	i := 1
	for ; i < len(m.order) && m.order[i].compare(c) < 0; i++ {
		m.order[i-1] = m.order[i]
	}
	m.order[i-1] = c
	return nil
}

// fill gets the next entries of a source and puts the cursor on the first.
func (m *mergedSource) fill(c *mergeCursor) (found bool, err error) {
	c.entries, err = c.next(c.entries[:0])
	if err != nil || len(c.entries) == 0 {
		return false, err
	}
	c.at, c.prefix = 0, keyPrefix(c.entries[0].key[m.shared:])
	return true, nil
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
