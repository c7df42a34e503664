package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// OS is the file system of the operating system.
var OS FS = osFS{}

const (
	fileMode = 0o644
	dirMode  = 0o755

	// maxHolderBytes bounds the size read of a lock file.
	maxHolderBytes = 1 << 10
)

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) {
	return openFile(name, os.O_RDONLY)
}

func (osFS) OpenAppend(name string) (File, error) {
	f, err := openFile(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (osFS) CreateAppendMap(name string, capacity int64) (AppendMap, error) {
	if capacity <= 0 || int64(int(capacity)) != capacity {
		return nil, &fs.PathError{Op: "create append map", Path: name, Err: fs.ErrInvalid}
	}
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	m, err := newAppendMap(f, capacity)
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return m, nil
}

func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) RemoveAll(name string) error          { return os.RemoveAll(name) }
func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }
func (osFS) Link(oldName, newName string) error   { return os.Link(oldName, newName) }
func (osFS) MkdirAll(dir string) error            { return os.MkdirAll(dir, dirMode) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) { return statName(name) }

func (osFS) SyncDir(dir string) error { return syncDir(dir) }

func (osFS) Free(dir string) (Space, error) { return free(dir) }

// Lock uses a kernel lock that belongs to the open file: it ends with its holder, and
// excludes a second Lock in this process. The lock file is not removed, because another
// process could then lock the removed file.
func (osFS) Lock(name, holder string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	locked, err := tryLock(f)
	if err == nil && !locked {
		err = &LockedError{Name: name, Holder: readHolder(f)}
	}
	if err == nil {
		// On a full disk the lock is held without a name.
		if err = writeHolder(f, holder); errors.Is(err, ErrNoSpace) {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osLock{file: f}, nil
}

func readHolder(f *os.File) string {
	// Without a readable name the lock is still held.
	holder, _ := io.ReadAll(io.NewSectionReader(f, 0, maxHolderBytes))
	return strings.TrimSpace(string(holder))
}

func writeHolder(f *os.File, holder string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(holder), 0)
	return err
}

type osLock struct{ file *os.File }

// Close empties the file first, so that a name in it belongs to the current holder or
// to a killed process.
func (l *osLock) Close() error {
	err := l.file.Truncate(0)
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return errors.Join(err, l.file.Close())
}

// osFile appends at the position of its descriptor, which OpenAppend and Truncate set.
// Reads use explicit offsets and do not move it.
type osFile struct {
	*os.File
	failed failure // the first failed Sync or SyncData
}

func openFile(name string, flags int) (*osFile, error) {
	f, err := os.OpenFile(name, flags, fileMode)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

func (f *osFile) Write(p []byte) (int, error) {
	if err := f.failed.get(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *osFile) WriteAt(p []byte, offset int64) (int, error) {
	if err := f.failed.get(); err != nil {
		return 0, err
	}
	info, err := f.File.Stat()
	if err != nil {
		return 0, err
	}
	if offset < 0 || offset+int64(len(p)) > info.Size() {
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.EINVAL}
	}
	return f.File.WriteAt(p, offset)
}

func (f *osFile) Close() error {
	err := f.File.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

func (f *osFile) Stat() (Info, error) { return statFile(f.File) }

func (f *osFile) Sync() error { return f.sync((*os.File).Sync) }

func (f *osFile) SyncData() error { return f.sync(syncData) }

func (f *osFile) sync(sync func(*os.File) error) error {
	if err := f.failed.get(); err != nil {
		return err
	}
	if err := sync(f.File); err != nil {
		return f.failed.set(err)
	}
	return nil
}

func (f *osFile) Truncate(size int64) error {
	if err := f.failed.get(); err != nil {
		return err
	}
	info, err := f.File.Stat()
	if err != nil {
		return err
	}
	if size < 0 || size > info.Size() {
		return &fs.PathError{Op: "truncate", Path: f.Name(), Err: syscall.EINVAL}
	}
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	_, err = f.Seek(size, io.SeekStart)
	return err
}

func (f *osFile) Map(size int64) (Mapping, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case size < 0 || int64(int(size)) != size:
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: fs.ErrInvalid}
	case size > info.Size():
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: io.ErrUnexpectedEOF}
	case size == 0:
		return &heapMapping{}, nil // mmap does not support empty mappings
	}
	return mapFile(f.File, int(size))
}
