package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"syscall"
	"time"
)

// write appends as much of p to a file as the capacity permits.
func (m *Mem) write(n *memInode, p []byte) (int, error) {
	if free := max(0, m.mu.capacity-m.mu.used); int64(len(p)) > free {
		written, err := m.write(n, p[:free])
		if err == nil {
			err = errNoSpace
		}
		return written, err
	}
	end := n.size
	if err := m.resize(n, end+int64(len(p))); err != nil {
		return 0, err
	}
	n.put(p, end)
	return len(p), nil
}

// put stores p at an offset after all stored bytes.
func (n *memInode) put(p []byte, offset int64) {
	if gap := offset - int64(len(n.data)); gap > 0 {
		n.data = append(n.data, make([]byte, gap)...)
	}
	n.data = append(n.data, p...)
	n.written(offset, int64(len(n.data)))
}

// putAt overwrites existing bytes. Bytes that are not stored are zeros.
func (n *memInode) putAt(p []byte, offset int64) error {
	end := offset + int64(len(p))
	if offset < 0 || end > n.size {
		return syscall.EINVAL
	}
	if gap := end - int64(len(n.data)); gap > 0 {
		n.data = append(n.data, make([]byte, gap)...)
	}
	copy(n.data[offset:], p)
	n.written(offset, end)
	return nil
}

// written marks the pages of a write dirty.
func (n *memInode) written(begin, end int64) {
	n.lastWrite.begin, n.lastWrite.end = begin, end
	n.modTime = time.Now()
	if begin == end {
		return
	}
	for page := begin / pageBytes; page*pageBytes < end; page++ {
		if n.lost[page] {
			n.clean = min(n.clean, page*pageBytes)
			delete(n.lost, page)
		}
	}
	n.clean = min(n.clean, begin)
}

// truncate truncates a file.
func (m *Mem) truncate(n *memInode, size int64) error {
	if size < 0 || size > n.size {
		return syscall.EINVAL
	}
	if size < int64(len(n.data)) {
		n.data = n.data[:size]
	}
	n.clean = min(n.clean, size)
	maps.DeleteFunc(n.lost, func(page int64, _ bool) bool { return page*pageBytes >= size })
	n.modTime = time.Now()
	return m.resize(n, size)
}

// sync makes the first through bytes and the size durable, except lost pages.
func (n *memInode) sync(through int64) {
	n.durableSize = n.size
	if through = min(through, int64(len(n.data))); through > n.clean {
		synced := n.data[n.clean:through]
		if len(n.lost) > 0 {
			synced = bytes.Clone(synced)
		}
		for page := range n.lost {
			from, to := max(page*pageBytes, n.clean), min((page+1)*pageBytes, through)
			if from < to {
				overlay(synced[from-n.clean:to-n.clean], n.durable, from)
			}
		}
		n.durable = append(n.durable[:n.clean], synced...)
		n.clean = through
	}
	if int64(len(n.durable)) > n.durableSize {
		n.durable = n.durable[:n.durableSize]
	}
}

// losePages simulates a sync that fails with LostPagesError.
func (n *memInode) losePages(evicted bool) {
	if n.lost == nil {
		n.lost = map[int64]bool{}
	}
	for page := n.clean / pageBytes; page*pageBytes < int64(len(n.data)); page++ {
		n.lost[page] = true
	}
	if evicted {
		n.data = n.unlost()
	}
}

// read reads the current bytes, including zeros, like ReadAt.
func (n *memInode) read(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, syscall.EINVAL
	}
	if offset >= n.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var err error
	if left := n.size - offset; int64(len(p)) > left {
		p, err = p[:left], io.EOF
	}
	copied := 0
	if offset < int64(len(n.data)) {
		copied = copy(p, n.data[offset:])
	}
	clear(p[copied:])
	return len(p), err
}

// memFile is an open file of a Mem.
type memFile struct {
	fs       *Mem
	inode    *memInode
	name     string
	writable bool
	lock     bool        // it holds the lock of the file
	process  *MemProcess // which opened it; nil: none
	closed   bool
}

// close requires fs.mu.
func (f *memFile) close() {
	if f.closed {
		return
	}
	f.closed = true
	f.fs.release(f.inode)
	if f.lock {
		delete(f.fs.mu.locks, f.inode)
	}
	if f.process != nil {
		delete(f.process.open, f)
	}
}

// check returns the error of an impossible operation. Requires fs.mu.
func (f *memFile) check(op string, writes bool) error {
	switch {
	case f.closed:
		return pathError(op, f.name, fs.ErrClosed)
	case writes && !f.writable:
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, offset int64) (int, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	n, err := f.inode.read(p, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		err = pathError("read", f.name, err)
	}
	return n, err
}

func (f *memFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	n, err := f.fs.write(f.inode, p)
	if err != nil {
		err = pathError("write", f.name, err)
	}
	return n, err
}

func (f *memFile) WriteAt(p []byte, offset int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.check("write", true)
	if err != nil {
		return 0, err
	}
	if err = f.inode.putAt(p, offset); err != nil {
		return 0, pathError("write", f.name, err)
	}
	return len(p), nil
}

func (f *memFile) Stat() (Info, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.check("stat", false); err != nil {
		return Info{}, err
	}
	return f.inode.info(), nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.inode.sync(f.inode.size)
	return nil
}

func (f *memFile) SyncData() error { return f.Sync() }

func (f *memFile) losePages(evicted bool) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.inode.losePages(evicted)
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.check("truncate", true)
	if err != nil {
		return err
	}
	if err = f.fs.truncate(f.inode, size); err != nil {
		return pathError("truncate", f.name, err)
	}
	return nil
}

func (f *memFile) Map(size int64) (Mapping, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("map", false); err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, pathError("map", f.name, fs.ErrInvalid)
	}
	if size > f.inode.size {
		return nil, pathError("map", f.name, io.ErrUnexpectedEOF)
	}
	bytes := make([]byte, size)
	if _, err := f.inode.read(bytes, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, pathError("map", f.name, err)
	}
	m := &memMapping{heapMapping: heapMapping{bytes: bytes}, fs: f.fs, inode: f.inode}
	if f.inode.mappings == nil {
		f.inode.mappings = map[*memMapping]bool{}
	}
	f.inode.mappings[m] = true
	return m, nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.close()
	return nil
}

// memAppendMap is a file with its full capacity from the start.
type memAppendMap struct {
	file     *memFile
	capacity int64
	size     int64 // guarded by file.fs.mu
}

func (a *memAppendMap) Append(p []byte) (int64, error) {
	a.file.fs.mu.Lock()
	defer a.file.fs.mu.Unlock()
	if err := a.file.check("append", true); err != nil {
		return 0, err
	}
	offset := a.size
	if int64(len(p)) > a.capacity-offset {
		return 0, ErrFull
	}
	if err := a.file.inode.putAt(p, offset); err != nil {
		return 0, pathError("append", a.file.name, err)
	}
	a.size += int64(len(p))
	return offset, nil
}

func (a *memAppendMap) Sync(through int64) error {
	a.file.fs.mu.Lock()
	defer a.file.fs.mu.Unlock()
	if err := a.file.check("sync", true); err != nil {
		return err
	}
	if through < 0 || through > a.size {
		return pathError("sync", a.file.name, syscall.EINVAL)
	}
	a.file.inode.sync(through)
	return nil
}

func (a *memAppendMap) losePages(evicted bool) { a.file.losePages(evicted) }

func (a *memAppendMap) Size() int64 {
	a.file.fs.mu.RLock()
	defer a.file.fs.mu.RUnlock()
	return a.size
}

func (a *memAppendMap) Close() error {
	a.file.fs.mu.Lock()
	defer a.file.fs.mu.Unlock()
	if a.file.closed {
		return nil
	}
	err := a.file.fs.truncate(a.file.inode, a.size)
	a.file.close()
	return err
}
