package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"docstore/internal/eof"
)

const (
	// listedFiles bounds the names that one walk over a directory returns. Twice as many are in
	// memory during the walk, so it takes about 20 MB.
	listedFiles = 1 << 16
	// readEntries bounds the entries of a directory that are read at a time.
	readEntries = 1 << 10
)

// directory is a Store of the files below a directory, also symbolic links to files; their names
// are absolute paths. It does not follow links to directories.
type directory struct {
	root    string
	pattern pattern
	listed  int                                   // listedFiles, except in tests
	open    func(dir string) (entryReader, error) // openEntries, except in tests
}

// entryReader reads a directory.
type entryReader interface {
	// ReadDir is that of os.File.
	ReadDir(n int) ([]fs.DirEntry, error)
	io.Closer
}

func openEntries(dir string) (entryReader, error) { return os.Open(dir) }

// NewDirectory returns the files that an absolute path with "*" and "**" selects.
func NewDirectory(path string) (Store, error) {
	p, err := parsePattern(path)
	if err != nil {
		return nil, err
	}
	root := p.prefix[:strings.LastIndexByte(p.prefix, '/')+1]
	info, err := os.Stat(root)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", root)
	}
	return &directory{root: root, pattern: p, listed: listedFiles, open: openEntries}, err
}

func (d *directory) List(ctx context.Context, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for {
			names, err := d.first(ctx, after)
			if err != nil {
				yield(Object{}, err)
				return
			}
			for _, name := range names {
				info, err := os.Stat(name)
				if errors.Is(err, fs.ErrNotExist) {
					continue // it was removed since
				}
				if err != nil {
					yield(Object{}, err)
					return
				}
				if !yield(Object{name, info.Size(), info.ModTime()}, nil) {
					return
				}
			}
			if len(names) < d.listed {
				return
			}
			after = names[len(names)-1]
		}
	}
}

// first returns the first files behind a name, in order, at most d.listed. It walks over the
// directory once.
func (d *directory) first(ctx context.Context, after string) ([]string, error) {
	w := walk{directory: d, after: after}
	err := w.read(ctx, d.root)
	return w.sorted(), err
}

// walk finds the first files behind a name.
type walk struct {
	*directory
	after string
	names []string
	full  bool // names that are not before last are not wanted
	last  string
}

// read visits the files below a directory, whose path ends with a slash.
func (w *walk) read(ctx context.Context, dir string) error {
	entries, err := w.open(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	defer entries.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		some, err := entries.ReadDir(readEntries)
		for _, entry := range some {
			path := dir + entry.Name()
			switch {
			case strings.HasPrefix(entry.Name(), "."):
				// The pattern does not select it.
			case entry.IsDir() && w.mayHold(path+"/"):
				if err := w.read(ctx, path+"/"); err != nil {
					return err
				}
			case path > w.after && w.pattern.selects(path) && isFile(entry, path):
				w.add(path)
			}
		}
		if err != nil {
			if eof.Is(err) {
				err = nil
			}
			return ignoreMissing(err)
		}
	}
}

// isFile reports whether an entry is a regular file, or a symbolic link to one.
func isFile(entry fs.DirEntry, path string) bool {
	if entry.Type() != fs.ModeSymlink {
		return entry.Type().IsRegular()
	}
	info, err := os.Stat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // List reports another error
	}
	return info.Mode().IsRegular()
}

// mayHold reports whether a directory may have files that are wanted.
func (w *walk) mayHold(dir string) bool {
	return (dir > w.after || strings.HasPrefix(w.after, dir)) && (!w.full || dir < w.last)
}

// add adds a name. It keeps the first ones.
func (w *walk) add(name string) {
	if w.full && name >= w.last {
		return
	}
	if w.names = append(w.names, name); len(w.names) == 2*w.listed {
		w.names = w.sorted()
		w.full, w.last = true, w.names[w.listed-1]
	}
}

func (w *walk) sorted() []string {
	slices.Sort(w.names)
	return w.names[:min(len(w.names), w.listed)]
}

// ignoreMissing ignores that a file was removed during the walk.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d *directory) Open(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if length < 0 {
		info, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return &openFileOfSize{file, info.Size() - offset}, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(file, length), file}, nil
}

// openFileOfSize is a file with the number of bytes that followed when it was opened.
type openFileOfSize struct {
	*os.File
	remaining int64
}

func (f *openFileOfSize) Remaining() int64 { return f.remaining }

func (d *directory) Size(_ context.Context, name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (d *directory) Describe(name string) string { return name }

func (d *directory) PollInterval() time.Duration { return time.Second }

func (d *directory) PageObjects() int { return d.listed }
