package digests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/bits"
	"path/filepath"

	"docstore/internal/prefetch"
	"docstore/internal/vfs"
	"docstore/queue"
)

// Table has a row for each live document of a collection, and perhaps for some that have expired.
type Table struct {
	options   Options
	dir       string
	file      vfs.Mapping // nil: there is no file
	rows      []byte
	positions []queue.Position // of the shards; zero: nothing was read
}

func (t *Table) name() string { return filepath.Join(t.dir, fileName) }

// Close releases the file.
func (t *Table) Close() error {
	file := t.file
	t.file, t.rows = nil, nil
	if file == nil {
		return nil
	}
	return file.Close()
}

// load reads the file. Without one, and if it is damaged, the table is empty.
func (t *Table) load() error {
	err := t.open()
	if err == nil {
		return nil
	}
	closing := t.Close()
	t.positions = make([]queue.Position, t.options.Layout.Shards)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case closing == nil && (errors.Is(err, errDamaged) || errors.Is(err, errVersion)):
		t.options.Logger.Warn("the digests of the documents are made again from the queue", "file", t.name(), "error", err)
		return nil
	}
	return errors.Join(err, closing)
}

func (t *Table) open() error {
	file, err := t.options.FS.Open(t.name())
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if t.file, err = file.Map(info.Size); err != nil {
		return err
	}
	var failed error
	if fault := vfs.Guard(func() { t.rows, t.positions, failed = parse(t.file.Bytes()) }); fault != nil || failed != nil {
		return errors.Join(fault, failed)
	}
	if len(t.positions) != t.options.Layout.Shards {
		return errDamaged
	}
	return nil
}

// Rows returns the number of rows.
func (t *Table) Rows() int64 { return int64(len(t.rows) / rowBytes) }

// Find returns the row of an id and its digest; -1: there is none.
func (t *Table) Find(id []byte) (row int64, d Digest, err error) {
	found := [1]Found{}
	err = t.FindAll(found[:], func(int) []byte { return id })
	return found[0].Row, found[0].Digest, err
}

// Found is the row of an id, -1: there is none, and its digest.
type Found struct {
	Row int64
	Digest
}

// FindAll finds each id. It is faster than Find for each of them, because their cache misses
// overlap.
func (t *Table) FindAll(found []Found, id func(i int) []byte) error {
	var searches [searchesAtOnce]search
	return vfs.Guard(func() {
		for first := 0; first < len(found); first += searchesAtOnce {
			group := searches[:min(searchesAtOnce, len(found)-first)]
			for i := range group {
				group[i] = startSearch(t.rows, hashOf(id(first+i)))
			}
			for searching := true; searching; {
				searching = false
				for i := range group {
					searching = group[i].step(t.rows) || searching
				}
			}
			for i, s := range group {
				found[first+i] = Found{Row: s.row}
				if s.row >= 0 {
					r := rowIn(t.rows[s.row*rowBytes:])
					found[first+i].Digest = r.digest()
				}
			}
		}
	})
}

// Digest returns the digest in a row.
func (t *Table) Digest(i int64) (d Digest, err error) {
	err = vfs.Guard(func() {
		r := rowIn(t.rows[i*rowBytes:])
		d = r.digest()
	})
	return d, err
}

// searchesAtOnce is the number of searches of FindAll whose cache misses overlap.
const searchesAtOnce = 32

// interpolations is the number of times that a search interpolates before it bisects. Ids that
// are not chosen for it need about five.
const interpolations = 32

// search searches the row of an id. The rows are sorted by a hash, whose values are spread evenly,
// so the next row to compare is computed from the distance.
type search struct {
	id        hash
	row       int64 // of the id; -1: it is not known
	low, high int64 // the row is in between
	at        int64 // the next row to compare
	tries     int
}

func startSearch(rows []byte, id hash) search {
	n := int64(len(rows) / rowBytes)
	s := search{id: id, row: -1, high: n}
	s.aim(rows, distance(binary.BigEndian.Uint64(id[:]), n))
	return s
}

// step compares a row. It returns false if the search has ended.
func (s *search) step(rows []byte) bool {
	if s.low >= s.high {
		return false
	}
	r, n := rows[s.at*rowBytes:][:len(s.id)], int64(len(rows)/rowBytes)
	want, got := binary.BigEndian.Uint64(s.id[:]), binary.BigEndian.Uint64(r)
	switch c := bytes.Compare(s.id[:], r); {
	case c == 0:
		s.row, s.low = s.at, s.high
	case c < 0:
		s.high = s.at
		s.aim(rows, s.at-1-distance(got-want, n))
	default:
		s.low = s.at + 1
		s.aim(rows, s.at+1+distance(want-got, n))
	}
	return s.low < s.high
}

// aim sets the next row to compare, and prefetches it.
func (s *search) aim(rows []byte, at int64) {
	if s.low >= s.high {
		return
	}
	if s.at = min(max(at, s.low), s.high-1); s.tries >= interpolations {
		s.at = s.low + (s.high-s.low)/2
	}
	s.tries++
	prefetch.Bytes(rows[s.at*rowBytes:][:rowBytes])
}

// distance returns the expected number of n rows between two hashes.
func distance(difference uint64, n int64) int64 {
	rows, _ := bits.Mul64(difference, uint64(n))
	return int64(rows)
}
