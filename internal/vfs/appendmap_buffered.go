package vfs

import (
	"io/fs"
	"sync/atomic"
	"syscall"
)

// bufferedAppend is an AppendMap on an ordinary file, with a write system call per
// Append. The file is never longer than Size.
type bufferedAppend struct {
	file     File
	capacity int64
	size     atomic.Int64 // changed only by Append
	failed   failure      // the first failed Append or Sync, or Close
}

func (b *bufferedAppend) Append(p []byte) (int64, error) {
	if err := b.failed.get(); err != nil {
		return 0, err
	}
	offset := b.size.Load()
	if int64(len(p)) > b.capacity-offset {
		return 0, ErrFull
	}
	if _, err := b.file.Write(p); err != nil {
		return 0, b.failed.set(err)
	}
	b.size.Store(offset + int64(len(p)))
	return offset, nil
}

func (b *bufferedAppend) Sync(through int64) error {
	if err := b.failed.get(); err != nil {
		return err
	}
	if through < 0 || through > b.size.Load() {
		return syscall.EINVAL
	}
	if err := b.file.SyncData(); err != nil {
		return b.failed.set(err)
	}
	return nil
}

func (b *bufferedAppend) Size() int64 { return b.size.Load() }

func (b *bufferedAppend) Close() error {
	_ = b.failed.set(fs.ErrClosed)
	return b.file.Close()
}
