package queue

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
)

// Bounds of the cache.
const (
	// maxOpenFiles bounds the mapped files of a Reader: a quarter of the mappings that
	// Linux gives a process by default (vm.max_map_count, 65,530). With segments of the
	// default size it is 1 TiB of documents. Beyond it the files that were not used for
	// longest are closed and opened again.
	maxOpenFiles = 16 << 10
	// unmappedWeight is how many mapped files an unmapped one counts for: it holds a
	// descriptor, of which a process has fewer. 1,024 of them fill the cache.
	unmappedWeight = 16
)

// cachedFile is an open segment or rewrite. It is closed when it has no user any more;
// the cache itself is one of the users.
type cachedFile struct {
	*segmentFile
	users atomic.Int64
	// touched: it was used since the cache last looked for a file to close.
	touched atomic.Bool
	// renewal is when to look whether the sealed file has taken this one's place,
	// if it is not sealed; Unix nanoseconds.
	renewal atomic.Int64

	// Of the cache, guarded by its mutex.
	segments []SegmentID // whose slots have the file
	place    int         // in the ring, from 1; 0: the file is not in the cache
}

// renewalInterval is how often it is looked whether a segment that documents are
// fetched from was sealed: then it can be mapped.
const renewalInterval = time.Second

// mayBeSealed tells whether it is time to look for the sealed file.
func (f *cachedFile) mayBeSealed() bool {
	if f.footer != nil {
		return false
	}
	now, due := time.Now().UnixNano(), f.renewal.Load()
	return now >= due && f.renewal.CompareAndSwap(due, now+int64(renewalInterval))
}

// weight is what the file takes of maxOpenFiles.
func (f *cachedFile) weight() int {
	if f.mapping == nil {
		return unmappedWeight
	}
	return 1
}

// acquire adds a user. False: the file has none any more and is closed.
func (f *cachedFile) acquire() bool {
	for {
		users := f.users.Load()
		if users == 0 {
			return false
		}
		if f.users.CompareAndSwap(users, users+1) {
			return true
		}
	}
}

// fileCache keeps files open, each once: a rewrite has the documents of many segments.
//
// The slots say which file has the documents of a segment. Looking there takes no lock.
// A file found there may have been closed in between; then it has no users, and it is
// not used. Which file to close is decided by the clock algorithm: the files form a
// ring, and a hand moves round it, past the files that were used since it last came by.
type fileCache struct {
	fs       vfs.FS
	dir      string
	limit    int // maxOpenFiles, or less in tests
	decoders *DecoderCache
	slots    slotTable
	bound    atomic.Pointer[[16]byte] // the queue whose files alone are opened; nil: any
	mu       struct {
		sync.Mutex // guards changes of the slots, too
		closed     bool
		files      map[string]*cachedFile // by path
		ring       []*cachedFile          // the same files
		hand       int
		weight     int // of all
	}
}

func (c *fileCache) init(fsys vfs.FS, dir string, decoders *DecoderCache) {
	c.fs, c.dir, c.limit, c.decoders = fsys, dir, maxOpenFiles, decoders
	c.mu.files = map[string]*cachedFile{}
}

// get returns the open file of a segment, to be put back, or nil.
func (c *fileCache) get(n SegmentID) *cachedFile {
	f := c.slots.get(n)
	if f == nil || !f.acquire() {
		return nil
	}
	if !f.touched.Load() {
		f.touched.Store(true)
	}
	return f
}

// put gives back what get or open returned.
func (c *fileCache) put(f *cachedFile) {
	if f.users.Add(-1) == 0 {
		_ = f.close() // it was read only
	}
}

// errUnchanged: the file is the one that was tried.
var errUnchanged = errors.New("queue: the file has not changed since it was tried")

// open returns the file with the path as it is now, to be put back. It is of the
// segment with the number, or a rewrite whose first segment that is. tried, if not nil,
// was used already; if that is the file, the error is errUnchanged.
func (c *fileCache) open(path string, number SegmentID, tried *cachedFile) (*cachedFile, error) {
	info, err := c.fs.Stat(path)
	if err != nil {
		return nil, err
	}
	if tried != nil && sameFile(info, tried.info) {
		return nil, errUnchanged
	}
	if f := c.opened(path, info); f != nil {
		return f, nil
	}
	s, err := openSegmentFile(c.fs, path, number)
	if err != nil {
		return nil, err
	}
	if err := c.admits(s); err != nil {
		s.file.Close()
		return nil, err
	}
	f := &cachedFile{segmentFile: s}
	f.users.Store(1)
	f.renewal.Store(time.Now().Add(renewalInterval).UnixNano())
	f.mapSealed()
	return f, nil
}

// opened is open from the cache, or nil.
func (c *fileCache) opened(path string, info vfs.Info) *cachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.mu.files[path]
	if f == nil || !sameFile(info, f.info) {
		return nil
	}
	f.users.Add(1)
	return f
}

// renew returns the sealed file in the place of f, which it puts back, and f
// itself if there is none.
func (c *fileCache) renew(f *cachedFile) *cachedFile {
	sealed, err := c.open(segmentPath(c.dir, f.number, sealedSuffix), f.number, f)
	switch {
	case err != nil:
		return f
	case sealed.footer == nil:
		c.put(sealed)
		return f
	}
	c.keep(sealed, f.number)
	c.put(f)
	return sealed
}

// keep puts a file that open returned into the cache, for a segment that it holds, in
// the place of the file that was there. The file stays the caller's to put back.
func (c *fileCache) keep(f *cachedFile, n SegmentID) {
	c.mu.Lock()
	var left []*cachedFile
	if !c.mu.closed {
		if f.place == 0 {
			if old := c.mu.files[f.path]; old != nil {
				left = append(left, c.remove(old))
			}
			c.add(f)
		}
		if old := c.setSlot(n, f); old != nil {
			left = append(left, old)
		}
		for c.mu.weight > c.limit && len(c.mu.ring) > 1 {
			left = append(left, c.remove(c.victim(f)))
		}
	}
	c.mu.Unlock()
	for _, old := range left {
		c.put(old)
	}
}

// The methods below need the mutex held. What they take out of the cache is to be put
// back when the mutex is released.

// add puts a file into the ring.
func (c *fileCache) add(f *cachedFile) {
	f.users.Add(1)
	c.mu.files[f.path] = f
	c.mu.ring = append(c.mu.ring, f)
	f.place = len(c.mu.ring)
	c.mu.weight += f.weight()
}

// remove takes a file out of the cache, which it returns.
func (c *fileCache) remove(f *cachedFile) *cachedFile {
	for _, n := range f.segments {
		c.slots.set(n, nil)
	}
	f.segments = nil
	delete(c.mu.files, f.path)
	last := len(c.mu.ring) - 1
	moved := c.mu.ring[last]
	c.mu.ring[f.place-1], moved.place = moved, f.place
	c.mu.ring[last] = nil
	c.mu.ring = c.mu.ring[:last]
	f.place = 0
	c.mu.weight -= f.weight()
	return f
}

// setSlot gives a segment's slot to a file. A file that has no slot left by that is taken
// out of the cache and returned.
func (c *fileCache) setSlot(n SegmentID, f *cachedFile) *cachedFile {
	old := c.slots.get(n)
	if old == f {
		return nil
	}
	c.slots.set(n, f)
	f.segments = append(f.segments, n)
	if old == nil {
		return nil
	}
	old.segments = slices.DeleteFunc(old.segments, func(m SegmentID) bool { return m == n })
	if len(old.segments) > 0 {
		return nil
	}
	return c.remove(old)
}

// victim is the file to be closed next, another one than the newest.
func (c *fileCache) victim(newest *cachedFile) *cachedFile {
	for {
		c.mu.hand = (c.mu.hand + 1) % len(c.mu.ring)
		if f := c.mu.ring[c.mu.hand]; f != newest && !f.touched.Swap(false) {
			return f
		}
	}
}

// close empties the cache. Files in use are closed when they are put back.
func (c *fileCache) close() {
	c.take(func(*cachedFile) bool { return true }, true)
}

// drop takes the originals and the older rewrites out of the cache that a rewrite
// stands for: what it does not hold is not to be served any more.
func (c *fileCache) drop(run rewriteRun) {
	c.take(func(f *cachedFile) bool { return run.covers(f.number) && f.header.rewrites.generation < run.generation }, false)
}

// take takes files out of the cache: those for which the function returns true.
func (c *fileCache) take(which func(*cachedFile) bool, closed bool) {
	var taken []*cachedFile
	c.mu.Lock()
	c.mu.closed = c.mu.closed || closed
	for _, f := range slices.Backward(c.mu.ring) { // remove moves the last one to its place
		if which(f) {
			taken = append(taken, c.remove(f))
		}
	}
	c.mu.Unlock()
	for _, f := range taken {
		c.put(f)
	}
}

// replacedBy are the rewrites in a listing that take the place of open files.
func (c *fileCache) replacedBy(l *listing) map[rewriteRun]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[rewriteRun]bool{}
	for _, f := range c.mu.ring {
		for _, run := range l.covering(f.number) {
			if f.header.rewrites.generation < run.generation {
				found[run] = true
			}
		}
	}
	return found
}

// withDictionary returns an open file that holds the dictionary with the hash, to be put
// back, or nil.
func (c *fileCache) withDictionary(hash DictionaryHash) *cachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.mu.ring {
		if f.header.dictionary.bytes > 0 && f.header.dictionary.hash == hash {
			f.users.Add(1)
			return f
		}
	}
	return nil
}
