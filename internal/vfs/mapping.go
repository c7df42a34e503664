package vfs

import "io/fs"

// heapMapping is a Mapping implemented as a copy on the heap.
type heapMapping struct {
	bytes  []byte
	closed bool
}

func (m *heapMapping) Bytes() []byte { return m.bytes }

func (m *heapMapping) Advise(Advice) error {
	if m.closed {
		return fs.ErrClosed
	}
	return nil
}

func (m *heapMapping) WillRead(_, _ int64) error { return m.Advise(AdviseNormal) }

func (m *heapMapping) Close() error {
	m.bytes, m.closed = nil, true
	return nil
}
