package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

const (
	errNoSpace     = windows.ERROR_DISK_FULL
	errCrossDevice = windows.ERROR_NOT_SAME_DEVICE
)

// lockOffset is the offset of the locked byte. Locks are mandatory on Windows, and the
// holder's name at the start must remain readable.
const lockOffset = 1 << 30

func statName(name string) (Info, error) {
	f, err := os.Open(name)
	if err != nil {
		return Info{}, err
	}
	info, err := statFile(f)
	return info, errors.Join(err, f.Close())
}

func statFile(f *os.File) (Info, error) {
	info, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	var stat windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &stat); err != nil {
		return Info{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return Info{
		Size:    info.Size(),
		ModTime: info.ModTime(),
		Dir:     info.IsDir(),
		ID: FileID{
			Device: uint64(stat.VolumeSerialNumber),
			Inode:  uint64(stat.FileIndexHigh)<<32 | uint64(stat.FileIndexLow),
		},
	}, nil
}

func syncData(f *os.File) error { return f.Sync() }

// syncDir only checks that the directory exists: NTFS journals its names and has no
// call to flush one directory.
func syncDir(dir string) error {
	_, err := os.Stat(dir)
	return err
}

func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{Offset: lockOffset})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return true, nil
}

func free(dir string) (Space, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return Space{}, err
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return Space{}, err
	}
	var bytes, size uint64
	if err := windows.GetDiskFreeSpaceEx(name, &bytes, &size, nil); err != nil {
		return Space{}, &fs.PathError{Op: "free", Path: dir, Err: err}
	}
	return Space{Bytes: int64(bytes), Size: int64(size), Inodes: NoInodeLimit}, nil
}

// mapFile reads the file, because a real mapping would prevent its removal.
func mapFile(f *os.File, size int) (Mapping, error) {
	bytes := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), bytes); err != nil {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: err}
	}
	return &heapMapping{bytes: bytes}, nil
}
