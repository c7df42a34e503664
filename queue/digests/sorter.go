package digests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"

	"docstore/internal/vfs"
)

// sortedRows is the number of rows that a sorter keeps in memory, 64 MiB. Tests change it.
var sortedRows = 2 << 20

// bufferBytes is the size of the buffers for files.
const bufferBytes = 256 << 10

// sorter sorts rows by id. Rows of one id stay in the order in which they were added.
type sorter struct {
	fs   vfs.FS
	name string // of temporary files, to which a number is appended
	rows []row
	runs []vfs.File // sorted rows, the earliest first
}

// add adds a row. Its order is set, except for the lowest bit.
func (s *sorter) add(r row) error {
	if len(s.rows) >= sortedRows {
		if err := s.spill(); err != nil {
			return err
		}
	}
	r.order = uint32(len(s.rows))<<1 | r.order&1
	s.rows = append(s.rows, r)
	return nil
}

func (s *sorter) empty() bool { return len(s.rows) == 0 && len(s.runs) == 0 }

func (s *sorter) run(n int) string { return fmt.Sprintf("%s.%d%s", s.name, n, vfs.TmpSuffix) }

// spill moves the rows in memory to a temporary file.
func (s *sorter) spill() error {
	name := s.run(len(s.runs))
	if err := remove(s.fs, name); err != nil { // of a run that was killed
		return err
	}
	file, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	s.runs = append(s.runs, file)
	slices.SortFunc(s.rows, row.compare)
	w := bufio.NewWriterSize(file, bufferBytes)
	for i := range s.rows {
		if _, err := w.Write(s.rows[i].append(w.AvailableBuffer())); err != nil {
			return err
		}
	}
	s.rows = s.rows[:0]
	return w.Flush()
}

// close removes the temporary files.
func (s *sorter) close() error {
	var err error
	for n, file := range s.runs {
		err = errors.Join(err, file.Close(), remove(s.fs, s.run(n)))
	}
	s.rows, s.runs = nil, nil
	return err
}

// sorted returns the rows.
func (s *sorter) sorted() iter.Seq2[row, error] {
	slices.SortFunc(s.rows, row.compare)
	inMemory := func(yield func(row, error) bool) {
		for _, r := range s.rows {
			if !yield(r, nil) {
				return
			}
		}
	}
	if len(s.runs) == 0 {
		return inMemory
	}
	var sources []iter.Seq2[row, error]
	for _, file := range s.runs {
		sources = append(sources, rowsOf(file))
	}
	return merge(append(sources, inMemory))
}

// rowsOf returns the rows of a temporary file.
func rowsOf(file vfs.File) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		info, err := file.Stat()
		if err != nil {
			yield(row{}, err)
			return
		}
		r, b := bufio.NewReaderSize(io.NewSectionReader(file, 0, info.Size), bufferBytes), make([]byte, rowBytes)
		for range info.Size / rowBytes {
			if _, err := io.ReadFull(r, b); err != nil {
				yield(row{}, err)
				return
			}
			if !yield(rowIn(b), nil) {
				return
			}
		}
	}
}

// merge merges sorted sources. Of rows with one id, those of earlier sources come first. It
// ends after an error.
func merge(sources []iter.Seq2[row, error]) iter.Seq2[row, error] {
	type head struct {
		row
		next func() (row, error, bool)
	}
	return func(yield func(row, error) bool) {
		var heads []head // that have a row, in the order of the sources
		for _, source := range sources {
			next, stop := iter.Pull2(source)
			defer stop()
			heads = append(heads, head{next: next})
		}
		advance := func(i int) error {
			r, err, more := heads[i].next()
			if heads[i].row = r; !more {
				heads = slices.Delete(heads, i, i+1)
			}
			return err
		}
		for i := len(heads) - 1; i >= 0; i-- {
			if err := advance(i); err != nil {
				yield(row{}, err)
				return
			}
		}
		for len(heads) > 0 {
			least := 0
			for i := range heads {
				if slices.Compare(heads[i].id[:], heads[least].id[:]) < 0 {
					least = i
				}
			}
			if !yield(heads[least].row, nil) {
				return
			}
			if err := advance(least); err != nil {
				yield(row{}, err)
				return
			}
		}
	}
}

// remove removes a file that may not exist.
func remove(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
