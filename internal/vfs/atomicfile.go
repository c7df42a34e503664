package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// TmpSuffix is appended to the name of an incomplete file.
const TmpSuffix = ".tmp"

// WriteFileAtomic durably replaces the contents of a file: a crash at any point leaves
// the old or the new contents. It writes name + ".tmp" first, which must have no other
// writer; it replaces a leftover of an earlier crash.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + TmpSuffix
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replaceFile(fsys, tmp, name, data)
}

// WriteFileShared is WriteFileAtomic for a file that several programs write at the same time:
// that of the last one remains. It writes nothing if the file has the contents. A crash may
// leave a file name + ".*.tmp".
func WriteFileShared(fsys FS, name string, data []byte) error {
	if old, err := ReadFile(fsys, name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	removeStale(fsys, name)
	return replaceFile(fsys, name+"."+strconv.FormatUint(rand.Uint64(), 36)+TmpSuffix, name, data)
}

// staleAfter is the age at which a temporary file can only be what a crash has left.
const staleAfter = time.Hour

// removeStale removes the temporary files that crashes of WriteFileShared have left.
func removeStale(fsys FS, name string) {
	dir := filepath.Dir(name)
	names, err := fsys.List(dir)
	if err != nil {
		return // the write reports it
	}
	for _, temporary := range names {
		if !strings.HasPrefix(temporary, filepath.Base(name)+".") || !strings.HasSuffix(temporary, TmpSuffix) {
			continue
		}
		path := filepath.Join(dir, temporary)
		if info, err := fsys.Stat(path); err == nil && time.Since(info.ModTime) > staleAfter {
			_ = fsys.Remove(path) // best effort: it is not read
		}
	}
}

// replaceFile writes the new file tmp and renames it to name.
func replaceFile(fsys FS, tmp, name string, data []byte) error {
	err := writeNewFile(fsys, tmp, data)
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		_ = fsys.Remove(tmp) // best effort: it is not read
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

// ReadFile returns the contents of a file.
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
