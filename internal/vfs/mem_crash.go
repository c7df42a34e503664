package vfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
)

// pageBytes is the unit in which a disk keeps or loses what was not synced.
const pageBytes = 4 << 10

// Keep says what a loss of power leaves of that which was not synced. The zero
// Keep is KeepSynced.
type Keep struct {
	what keepWhat
	seed uint64
}

type keepWhat uint8

const (
	keepSynced keepWhat = iota
	keepAll
	keepRandom
	keepTorn
	keepReordered
)

// The two extremes.
var (
	KeepSynced = Keep{what: keepSynced} // only what was synced
	KeepAll    = Keep{what: keepAll}    // everything: the process alone has died
)

// KeepRandom keeps a random part, the same for the same seed and history: of
// each file any subset of its 4 KiB pages, some of them torn, and a length
// between the old and the new; of the changes of names in all directories the
// first few or any subset. Of the pages that a sync has failed to write it may have
// written some, which the other ways do not keep.
func KeepRandom(seed uint64) Keep { return Keep{what: keepRandom, seed: seed} }

// KeepTorn keeps everything but the end of the last write to each file, which is
// torn at a random byte, with what was there before, or zeros, behind it.
func KeepTorn(seed uint64) Keep { return Keep{what: keepTorn, seed: seed} }

// KeepReordered keeps the bytes of all files, and of the changes of names any subset:
// directories became durable in another order than they were changed.
func KeepReordered(seed uint64) Keep { return Keep{what: keepReordered, seed: seed} }

// ProcessCrashClone returns a file system as other processes find it once the
// one that used m was killed: everything written is there, that of append maps
// too, which still have their full length. What was not durable still is not. No
// file is open and nothing locked.
func (m *Mem) ProcessCrashClone() *Mem { return m.CrashClone(KeepAll) }

// CrashClone returns a file system as the machine finds it after a loss of
// power at this moment. What was synced is there; keep says what else is. No
// file is open and nothing locked; all that is there is durable, save with KeepAll,
// which is ProcessCrashClone. Files keep their FileID. m itself goes on undisturbed.
func (m *Mem) CrashClone(keep Keep) *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if keep == KeepAll {
		return m.survivor()
	}
	c := &crash{
		keep:    keep.what,
		random:  rand.New(rand.NewPCG(keep.seed, 0)),
		entries: map[*memInode]map[string]*memInode{},
		clones:  map[*memInode]*memInode{},
		mem:     NewMem(),
	}
	for _, op := range c.keptOps(m.mu.pending) {
		op.apply(c.entriesOf)
	}
	c.mem.mu.root = c.clone(m.mu.root)
	c.mem.mu.lastInode = m.mu.lastInode
	c.mem.mu.capacity = m.mu.capacity
	return c.mem
}

// crash is a CrashClone under way.
type crash struct {
	keep    keepWhat
	random  *rand.Rand
	entries map[*memInode]map[string]*memInode // of directories, as the disk has them
	clones  map[*memInode]*memInode
	mem     *Mem
}

// entriesOf returns the entries of a directory that the disk is left with.
func (c *crash) entriesOf(dir *memInode) map[string]*memInode {
	entries := c.entries[dir]
	if entries == nil {
		entries = maps.Clone(dir.durableEntries)
		c.entries[dir] = entries
	}
	return entries
}

// clone copies an inode and what lies below it. Each further name of it is one
// more use of the same copy.
func (c *crash) clone(n *memInode) *memInode {
	if there := c.clones[n]; there != nil {
		there.uses++
		return there
	}
	clone := &memInode{id: n.id, dir: n.dir, modTime: n.modTime, uses: 1}
	c.clones[n] = clone
	if n.dir {
		clone.entries, clone.durableEntries = map[string]*memInode{}, map[string]*memInode{}
		entries := c.entriesOf(n)
		for _, name := range sortedNames(entries) {
			child := c.clone(entries[name])
			clone.entries[name], clone.durableEntries[name] = child, child
		}
		return clone
	}
	clone.data, clone.size = c.keptContent(n)
	clone.sync(clone.size)
	c.mem.mu.used += clone.size
	return clone
}

// survivor copies everything as it is, but for open files and locks. It needs m.mu
// held.
func (m *Mem) survivor() *Mem {
	there := NewMem()
	clones := map[*memInode]*memInode{}
	var clone func(n *memInode) *memInode
	entriesOf := func(entries map[string]*memInode) map[string]*memInode {
		if entries == nil {
			return nil
		}
		clones := make(map[string]*memInode, len(entries))
		for name, n := range entries {
			clones[name] = clone(n)
		}
		return clones
	}
	clone = func(n *memInode) *memInode {
		if c := clones[n]; c != nil || n == nil {
			return c
		}
		c := new(memInode)
		*c, clones[n] = *n, c
		c.uses = 0
		c.data, c.durable, c.lost = bytes.Clone(n.data), bytes.Clone(n.durable), maps.Clone(n.lost)
		c.entries, c.durableEntries = entriesOf(n.entries), entriesOf(n.durableEntries)
		for _, child := range c.entries {
			child.uses++
		}
		return c
	}
	there.mu.root = clone(m.mu.root)
	for _, op := range m.mu.pending {
		op.inode, op.from.dir, op.to.dir = clone(op.inode), clone(op.from.dir), clone(op.to.dir)
		there.mu.pending = append(there.mu.pending, op)
	}
	for _, c := range clones {
		if c.uses > 0 {
			there.mu.used += c.size
		}
	}
	there.mu.lastInode, there.mu.capacity = m.mu.lastInode, m.mu.capacity
	return there
}

// keptOps returns those of the pending changes of names that happened.
func (c *crash) keptOps(pending []dirOp) []dirOp {
	switch {
	case c.keep == keepTorn:
		return pending
	case c.keep == keepSynced:
		return nil
	case c.keep == keepRandom && c.random.IntN(2) == 0: // as a journal does
		return pending[:c.random.IntN(len(pending)+1)]
	}
	var kept []dirOp
	likely := c.random.Float64()
	for _, op := range pending {
		if c.random.Float64() < likely {
			kept = append(kept, op)
		}
	}
	return kept
}

// keptContent returns the bytes and the size that a file is left with.
func (c *crash) keptContent(n *memInode) ([]byte, int64) {
	switch c.keep {
	case keepReordered:
		return n.unlost(), n.size
	case keepSynced:
		return bytes.Clone(n.durable), n.durableSize
	case keepTorn:
		return c.tornContent(n), n.size
	}
	size := c.keptSize(n)
	data := make([]byte, min(size, int64(max(len(n.data), len(n.durable)))))
	copy(data, n.durable)
	likely := c.random.Float64()
	for page := int64(0); page < int64(len(data)); page += pageBytes {
		end := min(page+pageBytes, int64(len(data)))
		if end <= n.clean && !n.lost[page/pageBytes] || c.random.Float64() >= likely {
			continue
		}
		if c.random.IntN(4) == 0 { // torn
			end = page + c.random.Int64N(end-page)
		}
		overlay(data[page:end], n.data, page)
	}
	return data, size
}

// tornContent returns the bytes of a file of which the last write, as far as it was not
// synced, is torn.
func (c *crash) tornContent(n *memInode) []byte {
	data := n.unlost()
	end := min(n.lastWrite.end, int64(len(data)))
	if begin := max(n.clean, n.lastWrite.begin); begin < end {
		torn := begin + c.random.Int64N(end-begin)
		overlay(data[torn:end], n.durable, torn)
	}
	return data
}

// unlost returns the bytes of a file without those that a failed sync has lost.
func (n *memInode) unlost() []byte {
	data := bytes.Clone(n.data)
	for page := range n.lost {
		from, to := page*pageBytes, min((page+1)*pageBytes, int64(len(data)))
		overlay(data[from:to], n.durable, from)
	}
	return data
}

// keptSize returns the old size, the new one or one between.
func (c *crash) keptSize(n *memInode) int64 {
	switch c.random.IntN(3) {
	case 0:
		return n.durableSize
	case 1:
		return n.size
	}
	low, high := min(n.size, n.durableSize), max(n.size, n.durableSize)
	return low + c.random.Int64N(high-low+1)
}

// overlay replaces dst by the bytes of src from offset, zeros behind its end.
func overlay(dst, src []byte, offset int64) {
	copied := 0
	if offset < int64(len(src)) {
		copied = copy(dst, src[offset:])
	}
	clear(dst[copied:])
}
