package digests

import "docstore/internal/vfs"

// Unique finds out whether ids are different. It is not safe for concurrent use.
type Unique struct{ sorter sorter }

// NewUnique returns a Unique without ids. name is the beginning of the names of temporary files.
func NewUnique(fsys vfs.FS, name string) *Unique {
	return &Unique{sorter{fs: fsys, name: name}}
}

// Add adds an id with a mark of the caller.
func (u *Unique) Add(id []byte, mark uint64) error {
	return u.sorter.add(row{id: hashOf(id), value: mark})
}

// Twice returns the mark of an id that was added before, the first such one; false: all ids
// are different.
func (u *Unique) Twice() (mark uint64, found bool, err error) {
	var before hash
	for r, err := range u.sorter.sorted() {
		if err != nil {
			return 0, false, err
		}
		if r.id == before && (!found || r.value < mark) {
			mark, found = r.value, true
		}
		before = r.id
	}
	return mark, found, nil
}

// Close removes the temporary files.
func (u *Unique) Close() error { return u.sorter.close() }
