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
	KeepAll    = Keep{what: keepAll}    // everything, as after the death of the process alone
)

// KeepRandom keeps a random part, the same for the same seed and history: of
// each file any subset of its 4 KiB pages, some of them torn, and a length
// between the old and the new; of the changes of names in all directories the
// first few or any subset.
func KeepRandom(seed uint64) Keep { return Keep{what: keepRandom, seed: seed} }

// KeepTorn keeps everything but the end of the last write to each file, which is
// torn at a random byte, with what was there before, or zeros, behind it.
func KeepTorn(seed uint64) Keep { return Keep{what: keepTorn, seed: seed} }

// KeepReordered keeps the bytes of all files, and of the changes of names any subset:
// directories became durable in another order than they were changed.
func KeepReordered(seed uint64) Keep { return Keep{what: keepReordered, seed: seed} }

// ProcessCrashClone returns a file system as other processes find it once the
// one that used m was killed: everything written is there, that of append maps
// too, which still have their full length. No file is open and nothing locked.
func (m *Mem) ProcessCrashClone() *Mem { return m.CrashClone(KeepAll) }

// CrashClone returns a file system as the machine finds it after a loss of
// power at this moment. What was synced is there; keep says what else is. No
// file is open and nothing locked; all that is there is durable. Files keep
// their FileID. m itself goes on undisturbed.
func (m *Mem) CrashClone(keep Keep) *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
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

// keptOps returns those of the pending changes of names that happened.
func (c *crash) keptOps(pending []dirOp) []dirOp {
	switch {
	case c.keep == keepAll, c.keep == keepTorn:
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
	case keepAll, keepReordered:
		return bytes.Clone(n.data), n.size
	case keepSynced:
		return bytes.Clone(n.durable), n.durableSize
	case keepTorn:
		return c.tornContent(n), n.size
	}
	size := c.keptSize(n)
	data := make([]byte, min(size, int64(max(len(n.data), len(n.durable)))))
	copy(data, n.durable)
	likely := c.random.Float64()
	for page := n.clean / pageBytes * pageBytes; page < int64(len(data)); page += pageBytes {
		if c.random.Float64() >= likely {
			continue
		}
		end := min(page+pageBytes, int64(len(data)))
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
	data := bytes.Clone(n.data)
	if begin := max(n.clean, n.lastWrite); begin < int64(len(data)) {
		torn := begin + c.random.Int64N(int64(len(data))-begin)
		overlay(data[torn:], n.durable, torn)
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
