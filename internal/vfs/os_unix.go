//go:build linux || darwin

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	errNoSpace     = unix.ENOSPC
	errCrossDevice = unix.EXDEV
)

// withDescriptor runs a system call on an open file, which prevents Close meanwhile,
// and retries it after EINTR.
func withDescriptor(f *os.File, op string, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			callErr = call(int(fd))
			if !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil { // Control fails only on a closed file
		callErr = fs.ErrClosed
	}
	if callErr != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: callErr}
	}
	return nil
}

func statName(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(info), nil
}

func statFile(f *os.File) (Info, error) {
	info, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(info), nil
}

func infoOf(info fs.FileInfo) Info {
	stat := info.Sys().(*syscall.Stat_t)
	return Info{
		Size:    info.Size(),
		ModTime: info.ModTime(),
		Dir:     info.IsDir(),
		ID:      FileID{Device: deviceOf(stat), Inode: stat.Ino},
	}
}

// syncDir ignores file systems that cannot sync a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

func tryLock(f *os.File) (bool, error) {
	err := withDescriptor(f, "lock", func(fd int) error {
		return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	})
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func free(dir string) (Space, error) {
	var stat unix.Statfs_t
	for {
		err := unix.Statfs(dir, &stat)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
		space := Space{Bytes: int64(stat.Bavail * uint64(stat.Bsize)), Size: int64(stat.Blocks * uint64(stat.Bsize)), Inodes: int64(stat.Ffree)}
		if stat.Files == 0 {
			space.Inodes = NoInodeLimit
		}
		return space, nil
	}
}

func mapFile(f *os.File, size int) (Mapping, error) {
	var bytes []byte
	err := withDescriptor(f, "map", func(fd int) (err error) {
		bytes, err = unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &osMapping{bytes: bytes}, nil
}

type osMapping struct{ bytes []byte }

func (m *osMapping) Bytes() []byte { return m.bytes }

var madvise = [...]int{
	AdviseNormal:     unix.MADV_NORMAL,
	AdviseRandom:     unix.MADV_RANDOM,
	AdviseSequential: unix.MADV_SEQUENTIAL,
	AdviseDontNeed:   unix.MADV_DONTNEED,
}

func (m *osMapping) Advise(advice Advice) error {
	if m.bytes == nil {
		return fs.ErrClosed
	}
	if advice == AdvisePresent {
		return mapPresent(m.bytes)
	}
	return os.NewSyscallError("madvise", unix.Madvise(m.bytes, madvise[advice]))
}

func (m *osMapping) WillRead(from, to int64) error {
	if m.bytes == nil {
		return fs.ErrClosed
	}
	from &^= int64(os.Getpagesize() - 1)
	return os.NewSyscallError("madvise", unix.Madvise(m.bytes[from:to], unix.MADV_WILLNEED))
}

func (m *osMapping) Close() error {
	if m.bytes == nil {
		return nil
	}
	err := unix.Munmap(m.bytes)
	m.bytes = nil
	return os.NewSyscallError("munmap", err)
}
