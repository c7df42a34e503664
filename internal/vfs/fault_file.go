package vfs

import (
	"errors"
	"io/fs"
)

// faultFile is a File of a Fault.
type faultFile struct {
	fault  *Fault
	name   string
	file   File
	failed failure // the first failed Sync or SyncData
}

func (f *faultFile) ReadAt(p []byte, offset int64) (int, error) {
	err := f.fault.before(OpReadAt, f.name, len(p))
	if err == nil {
		return f.file.ReadAt(p, offset)
	}
	part := shortened(p, err)
	if len(part) == 0 {
		return 0, err
	}
	n, readErr := f.file.ReadAt(part, offset)
	return n, errors.Join(err, readErr)
}

func (f *faultFile) Write(p []byte) (int, error) {
	return f.write(OpWrite, p, f.file.Write)
}

func (f *faultFile) WriteAt(p []byte, offset int64) (int, error) {
	return f.write(OpWriteAt, p, func(p []byte) (int, error) { return f.file.WriteAt(p, offset) })
}

func (f *faultFile) write(kind OpKind, p []byte, write func([]byte) (int, error)) (int, error) {
	if err := f.failed.get(); err != nil {
		return 0, err
	}
	err := f.fault.before(kind, f.name, len(p))
	if err == nil {
		return write(p)
	}
	part := shortened(p, err)
	if len(part) == 0 {
		return 0, err
	}
	n, writeErr := write(part)
	return n, errors.Join(err, writeErr)
}

// shortened returns the part of p that is read or written despite err.
func shortened(p []byte, err error) []byte {
	var short *ShortError
	if errors.As(err, &short) {
		return p[:min(short.Bytes, len(p))]
	}
	return nil
}

func (f *faultFile) Close() error {
	return errors.Join(f.fault.before(OpClose, f.name, 0), f.file.Close())
}

func (f *faultFile) Stat() (Info, error) {
	if err := f.fault.before(OpStat, f.name, 0); err != nil {
		return Info{}, err
	}
	return f.file.Stat()
}

func (f *faultFile) Sync() error { return f.sync(OpSync, f.file.Sync) }

func (f *faultFile) SyncData() error { return f.sync(OpSyncData, f.file.SyncData) }

func (f *faultFile) sync(kind OpKind, sync func() error) error {
	if err := f.failed.get(); err != nil {
		return err
	}
	if err := f.fault.before(kind, f.name, 0); err != nil {
		losePages(f.file, err)
		return f.failed.set(err)
	}
	return sync()
}

// losePages applies a LostPagesError to a Mem's file or append map.
func losePages(file any, err error) {
	var lost *LostPagesError
	if !errors.As(err, &lost) {
		return
	}
	if file, ok := file.(interface{ losePages(evicted bool) }); ok {
		file.losePages(lost.Evicted)
	}
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.failed.get(); err != nil {
		return err
	}
	if err := f.fault.before(OpTruncate, f.name, 0); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

func (f *faultFile) Map(size int64) (Mapping, error) {
	if err := f.fault.before(OpMap, f.name, int(size)); err != nil {
		return nil, err
	}
	return f.file.Map(size)
}

// faultAppendMap is an AppendMap of a Fault.
type faultAppendMap struct {
	fault     *Fault
	name      string
	appendMap AppendMap
	failed    failure // the first failed Append or Sync, or Close
}

func (m *faultAppendMap) Append(p []byte) (int64, error) {
	if err := m.failed.get(); err != nil {
		return 0, err
	}
	err := m.fault.before(OpAppend, m.name, len(p))
	if err == nil {
		return m.appendMap.Append(p)
	}
	if part := shortened(p, err); len(part) > 0 {
		_, appendErr := m.appendMap.Append(part)
		err = errors.Join(err, appendErr)
	}
	return 0, m.failed.set(err)
}

func (m *faultAppendMap) Sync(through int64) error {
	if err := m.failed.get(); err != nil {
		return err
	}
	if err := m.fault.before(OpAppendSync, m.name, 0); err != nil {
		losePages(m.appendMap, err)
		return m.failed.set(err)
	}
	return m.appendMap.Sync(through)
}

func (m *faultAppendMap) Size() int64 { return m.appendMap.Size() }

func (m *faultAppendMap) Close() error {
	_ = m.failed.set(fs.ErrClosed)
	if err := m.fault.before(OpAppendClose, m.name, 0); err != nil {
		return err
	}
	return m.appendMap.Close()
}
