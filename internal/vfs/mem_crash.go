package vfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
)

// pageBytes is the unit in which unsynced data survive or are lost.
const pageBytes = 4 << 10

// Keep determines which unsynced data survive a power cut. The zero Keep is KeepSynced.
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

// Extremes.
var (
	KeepSynced = Keep{what: keepSynced} // only synced data
	KeepAll    = Keep{what: keepAll}    // everything, as after a process crash
)

// KeepRandom keeps a random part, determined by the seed and the history: of each file
// any subset of its 4 KiB pages, some of them torn, and a length between the old and
// the new; of the changes of names in all directories a prefix or any subset. It is the
// only Keep that may keep pages lost by a failed sync.
func KeepRandom(seed uint64) Keep { return Keep{what: keepRandom, seed: seed} }

// KeepTorn keeps everything except the end of the last write to each file, from a
// random byte on, which has its previous contents or zeros.
func KeepTorn(seed uint64) Keep { return Keep{what: keepTorn, seed: seed} }

// KeepReordered keeps the contents of all files, and any subset of the changes of
// names: directories became durable in another order than they were changed.
func KeepReordered(seed uint64) Keep { return Keep{what: keepReordered, seed: seed} }

// ProcessCrashClone returns the file system after the process that used m was killed:
// all writes survive, including those of append maps, which still have their full
// length. Unsynced data remain unsynced. No file is open or locked.
func (m *Mem) ProcessCrashClone() *Mem { return m.CrashClone(KeepAll) }

// CrashClone returns the file system after a power cut at this moment. It has all
// synced data and the unsynced data that keep selects. No file is open or locked;
// everything is durable, except with KeepAll, which is ProcessCrashClone. Files keep
// their FileID. m is not changed.
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

// crash is the state of one CrashClone.
type crash struct {
	keep    keepWhat
	random  *rand.Rand
	entries map[*memInode]map[string]*memInode // durable entries by directory
	clones  map[*memInode]*memInode
	mem     *Mem
}

// entriesOf returns the surviving entries of a directory.
func (c *crash) entriesOf(dir *memInode) map[string]*memInode {
	entries := c.entries[dir]
	if entries == nil {
		entries = maps.Clone(dir.durableEntries)
		c.entries[dir] = entries
	}
	return entries
}

// clone copies an inode and everything below it. An inode with several names is copied
// once.
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

// survivor copies everything except open files and locks. Requires m.mu.
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
		c.uses, c.mappings = 0, nil
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

// keptOps returns the pending changes of names that survive.
func (c *crash) keptOps(pending []dirOp) []dirOp {
	switch {
	case c.keep == keepTorn:
		return pending
	case c.keep == keepSynced:
		return nil
	case c.keep == keepRandom && c.random.IntN(2) == 0: // a prefix, like a journal
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

// keptContent returns the surviving bytes and size of a file.
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

// tornContent returns the bytes of a file with a torn last write, if that was not
// synced.
func (c *crash) tornContent(n *memInode) []byte {
	data := n.unlost()
	end := min(n.lastWrite.end, int64(len(data)))
	if begin := max(n.clean, n.lastWrite.begin); begin < end {
		torn := begin + c.random.Int64N(end-begin)
		overlay(data[torn:end], n.durable, torn)
	}
	return data
}

// unlost returns the bytes of a file without those lost by a failed sync.
func (n *memInode) unlost() []byte {
	data := bytes.Clone(n.data)
	for page := range n.lost {
		from, to := page*pageBytes, min((page+1)*pageBytes, int64(len(data)))
		overlay(data[from:to], n.durable, from)
	}
	return data
}

// keptSize returns the old size, the new one or one between them.
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

// overlay replaces dst from offset by src, padded with zeros.
func overlay(dst, src []byte, offset int64) {
	copied := 0
	if offset < int64(len(src)) {
		copied = copy(dst, src[offset:])
	}
	clear(dst[copied:])
}
