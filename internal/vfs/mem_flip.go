package vfs

import "io/fs"

// memMapping is a mapping of a Mem's file.
type memMapping struct {
	heapMapping
	fs    *Mem
	inode *memInode
}

func (m *memMapping) Close() error {
	m.fs.mu.Lock()
	defer m.fs.mu.Unlock()
	delete(m.inode.mappings, m)
	return m.heapMapping.Close()
}

// FlipBit inverts a bit of a file, as a failing disk does: in its current and its durable bytes,
// and in mappings.
func (m *Mem) FlipBit(name string, offset int64, bit uint8) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("flip", name)
	if err != nil {
		return err
	}
	if n.dir || offset < 0 || offset >= n.size {
		return pathError("flip", name, fs.ErrInvalid)
	}
	if gap := offset + 1 - int64(len(n.data)); gap > 0 {
		n.data = append(n.data, make([]byte, gap)...)
	}
	if gap := offset + 1 - int64(len(n.durable)); gap > 0 && offset < n.durableSize {
		n.durable = append(n.durable, make([]byte, gap)...)
	}
	flipBit(n.data, offset, bit)
	flipBit(n.durable, offset, bit)
	for mapping := range n.mappings {
		flipBit(mapping.bytes, offset, bit)
	}
	return nil
}

// flipBit changes mapped bytes while they are read, as the kernel does: the race detector must
// not see it.
//
//go:norace
func flipBit(content []byte, offset int64, bit uint8) {
	if offset < int64(len(content)) {
		content[offset] ^= 1 << bit
	}
}
