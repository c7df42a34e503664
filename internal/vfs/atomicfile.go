package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
)

// tmpSuffix is appended to the name of a file that is not whole yet.
const tmpSuffix = ".tmp"

// WriteFileAtomic puts data under name, durably, so that after a crash at any
// point the file is the old one or the new one. It goes by way of name + ".tmp",
// which one writer at a time may use and which an earlier crash may have left.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + tmpSuffix
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := writeNewFile(fsys, tmp, data)
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		// Best effort: the next write removes it as well.
		_ = fsys.Remove(tmp)
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

func writeNewFile(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadFile returns all of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size)
	n, err := f.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil // as long as it is now
	}
	if err != nil {
		return nil, err
	}
	return data[:n], nil
}
