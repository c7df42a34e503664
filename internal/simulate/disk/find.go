package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"path"

	"docstore/internal/vfs"
)

// File is a file that Find found.
type File struct {
	Name string
	Size int64 // bytes
}

// Find returns the files below a directory whose base name matches as by path.Match, sorted by
// directory. A missing directory has none.
func (d *Disk) Find(dir, pattern string) (files []File, err error) {
	return find(d.Files(), dir, pattern)
}

func find(mem *vfs.Mem, dir, pattern string) (files []File, err error) {
	names, err := mem.List(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	for _, name := range names {
		full := path.Join(dir, name)
		info, err := mem.Stat(full)
		if err != nil {
			continue // removed meanwhile
		}
		if info.Dir {
			below, err := find(mem, full, pattern)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
			continue
		}
		matched, err := path.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if matched {
			files = append(files, File{full, info.Size})
		}
	}
	return files, nil
}

// different returns the names of the files below a directory whose base name matches, and which have
// other bytes in after than in before.
func different(before, after *vfs.Mem, dir, pattern string) (names []string, err error) {
	files, err := find(after, dir, pattern)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		is, err := vfs.ReadFile(after, f.Name)
		if err != nil {
			return nil, err
		}
		was, err := vfs.ReadFile(before, f.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && !bytes.Equal(is, was) {
			names = append(names, f.Name)
		}
	}
	return names, nil
}

// Containing returns the names of the files below a directory that contain some bytes, such as
// those of an erased document.
func (d *Disk) Containing(dir string, content []byte) (names []string, err error) {
	files, err := d.Find(dir, "*")
	if err != nil {
		return nil, err
	}
	mem := d.Files()
	for _, f := range files {
		there, err := vfs.ReadFile(mem, f.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if bytes.Contains(there, content) {
			names = append(names, f.Name)
		}
	}
	return names, nil
}
