package kv

import (
	"bytes"
	"math/bits"
	"slices"
)

// MergedSource merges several sources. The entry of the newest source hides the others
// with the same key.
type MergedSource struct {
	all    []mergeCursor
	shared int // length of the prefix common to all keys

	// cursors are those that may have entries, newest first, and prefixes those of the
	// keys that they are at. There are few, so the least prefix is found by a linear
	// search, which needs no unpredictable branch.
	cursors  []*mergeCursor
	prefixes []uint64
}

// mergeCursor is the position in a source.
type mergeCursor struct {
	Source
	entries  []Entry
	prefixes []uint64 // of the keys, after the common prefix
	at       int
	bytes    uint64 // size of the keys and values returned
}

// mergeBatch is the maximum number of entries per call of MergedSource.Next.
const mergeBatch = 64

// NewMergedSource merges sources, newest first, whose keys share a prefix of the given
// length.
func NewMergedSource(sources []Source, shared int) *MergedSource {
	m := &MergedSource{all: make([]mergeCursor, len(sources)), shared: shared, prefixes: make([]uint64, len(sources))}
	for i, source := range sources {
		m.all[i].Source = source
		m.cursors = append(m.cursors, &m.all[i])
	}
	return m
}

// Next implements Source.
func (m *MergedSource) Next(dst []Entry) ([]Entry, error) {
	if err := m.refill(); err != nil || len(m.cursors) == 0 {
		return dst, err
	}
	// An exhausted cursor ends the batch: refilling it would overwrite the entries
	// returned.
	for more, n := true, 0; more && n < mergeBatch; n++ {
		at, tied := least(m.prefixes)
		if tied {
			dst, more = m.nextTied(dst, m.prefixes[at])
			continue
		}
		dst = append(dst, *m.cursors[at].take())
		more = m.advance(at)
	}
	return dst, nil
}

// nextTied appends the entry with the least key of several with a given prefix, and
// advances the cursors at that key. It reports whether none of them is exhausted.
func (m *MergedSource) nextTied(dst []Entry, prefix uint64) (all []Entry, more bool) {
	first := -1
	for i, p := range m.prefixes {
		if p == prefix && (first < 0 || bytes.Compare(m.cursors[i].key(), m.cursors[first].key()) < 0) {
			first = i
		}
	}
	e := m.cursors[first].take()
	more = true
	for i := first; i < len(m.cursors); i++ { // newer ones are at greater keys
		if i == first || m.prefixes[i] == prefix && bytes.Equal(m.cursors[i].key(), e.Key) {
			more = m.advance(i) && more
		}
	}
	return append(dst, *e), more
}

// least returns the index of the first of the least prefixes, and whether there is
// another. It is branch-free except for the loop.
func least(prefixes []uint64) (at int, tied bool) {
	best, index, ties := prefixes[0], uint64(0), uint64(0)
	for i := 1; i < len(prefixes); i++ {
		p := prefixes[i]
		_, less := bits.Sub64(p, best, 0)
		_, differs := bits.Sub64(0, p^best, 0)
		mask := -less
		ties = ties&^mask | (1 - differs)
		best ^= (best ^ p) & mask
		index ^= (index ^ uint64(i)) & mask
	}
	return int(index), ties != 0
}

// refill loads the next entries of exhausted cursors and drops those without any.
func (m *MergedSource) refill() error {
	for i := 0; i < len(m.cursors); {
		c := m.cursors[i]
		if c.at == len(c.entries) {
			if err := c.load(m.shared); err != nil {
				return err
			}
			if len(c.entries) == 0 {
				m.cursors = slices.Delete(m.cursors, i, i+1)
				m.prefixes = slices.Delete(m.prefixes, i, i+1)
				continue
			}
			m.prefixes[i] = c.prefixes[0]
		}
		i++
	}
	return nil
}

// advance advances a cursor and reports whether it has another entry.
func (m *MergedSource) advance(i int) bool {
	c := m.cursors[i]
	if c.at++; c.at == len(c.entries) {
		return false
	}
	m.prefixes[i] = c.prefixes[c.at]
	return true
}

// NewestShare returns the newest source's fraction of the bytes returned.
func (m *MergedSource) NewestShare() float64 {
	all := uint64(0)
	for i := range m.all {
		all += m.all[i].bytes
	}
	return float64(m.all[0].bytes) / float64(max(1, all))
}

// load reads the next entries of the source.
func (c *mergeCursor) load(shared int) (err error) {
	c.entries, err = c.Next(c.entries[:0])
	c.at, c.prefixes = 0, c.prefixes[:0]
	for i := range c.entries {
		c.prefixes = append(c.prefixes, Prefix(c.entries[i].Key[shared:]))
	}
	return err
}

// take returns the current entry and counts it.
func (c *mergeCursor) take() *Entry {
	e := &c.entries[c.at]
	c.bytes += uint64(len(e.Key) + len(e.Value))
	return e
}

func (c *mergeCursor) key() []byte { return c.entries[c.at].Key }
