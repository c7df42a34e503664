package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// newAppendMap maps a new file with all blocks allocated, so that writing to the
// mapping cannot fail with a full disk. If the file system cannot allocate blocks or
// share mappings, it uses buffered writes.
func newAppendMap(f *osFile, capacity int64) (AppendMap, error) {
	err := withDescriptor(f.File, "fallocate", func(fd int) error {
		return unix.Fallocate(fd, 0, 0, capacity)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return &bufferedAppend{file: f, capacity: capacity}, nil
	}
	if err != nil {
		return nil, err
	}
	var bytes []byte
	err = withDescriptor(f.File, "map", func(fd int) (err error) {
		bytes, err = unix.Mmap(fd, 0, int(capacity), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	if errors.Is(err, unix.ENODEV) {
		if err := f.Truncate(0); err != nil {
			return nil, err
		}
		return &bufferedAppend{file: f, capacity: capacity}, nil
	}
	if err != nil {
		return nil, err
	}
	return &mappedAppend{file: f, bytes: bytes, capacity: capacity}, nil
}

// mappedAppend is an AppendMap over a shared mapping. Invariants: bytes below size do
// not change; only Append changes size, after writing the bytes;
// everything below synced is durable.
type mappedAppend struct {
	file     *osFile
	bytes    []byte // the mapping, as long as the capacity; nil once closed
	capacity int64
	size     atomic.Int64
	failed   failure // the first failed Append or Sync, or Close

	syncing struct { // held during a Sync, so that Close waits for it
		sync.Mutex
		synced int64
	}
}

func (m *mappedAppend) Append(p []byte) (int64, error) {
	if err := m.failed.get(); err != nil {
		return 0, err
	}
	offset := m.size.Load()
	if int64(len(p)) > m.capacity-offset {
		return 0, ErrFull
	}
	if err := Guard(func() { copy(m.bytes[offset:], p) }); err != nil {
		return 0, m.failed.set(fmt.Errorf("append to %s: %w", m.file.Name(), err))
	}
	m.size.Store(offset + int64(len(p)))
	return offset, nil
}

func (m *mappedAppend) Sync(through int64) error {
	m.syncing.Lock()
	defer m.syncing.Unlock()
	if err := m.failed.get(); err != nil {
		return err
	}
	if through < 0 || through > m.size.Load() {
		return &fs.PathError{Op: "sync", Path: m.file.Name(), Err: syscall.EINVAL}
	}
	if through <= m.syncing.synced {
		return nil
	}
	// The page in which the last Sync ended must be written again. Like fdatasync, msync
	// also writes the file's size and block map.
	from := m.syncing.synced &^ int64(os.Getpagesize()-1)
	if err := unix.Msync(m.bytes[from:through], unix.MS_SYNC); err != nil {
		return m.failed.set(&fs.PathError{Op: "msync", Path: m.file.Name(), Err: err})
	}
	m.syncing.synced = through
	return nil
}

func (m *mappedAppend) Size() int64 { return m.size.Load() }

func (m *mappedAppend) Close() error {
	m.syncing.Lock()
	defer m.syncing.Unlock()
	_ = m.failed.set(fs.ErrClosed)
	if m.bytes == nil {
		return nil
	}
	err := unix.Munmap(m.bytes)
	m.bytes = nil
	return errors.Join(os.NewSyscallError("munmap", err), m.file.Truncate(m.size.Load()), m.file.Close())
}
