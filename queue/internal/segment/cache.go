package segment

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// Bounds of the cache.
const (
	// maxOpenFiles bounds the mapped files of a Reader: a quarter of the mappings that
	// Linux gives a process by default (vm.max_map_count, 65,530). With segments of the
	// default size it is 1 TiB of documents. Beyond it the least recently used files are
	// closed, and reopened on demand.
	maxOpenFiles = 16 << 10
	// unmappedWeight is the weight of an unmapped file, which holds a file descriptor, in
	// mapped files. 1,024 of them fill the cache.
	unmappedWeight = 16
)

// CachedFile is an open segment or rewrite with a reference count. It is closed when the
// count becomes zero. The cache holds one reference.
type CachedFile struct {
	*File
	users atomic.Int64
	// touched: the file was used since the clock hand last passed it.
	touched atomic.Bool
	// renewal is the time, in Unix nanoseconds, of the next check whether an unsealed
	// file has been replaced by the sealed one.
	renewal atomic.Int64

	// Guarded by the mutex of the cache.
	segments []ID // whose slots refer to the file
	place    int  // in the ring, from 1; 0: the file is not in the cache
}

// renewalInterval is the interval of checks whether a segment that documents are fetched
// from has been sealed. A sealed segment can be mapped.
const renewalInterval = time.Second

// MayBeSealed reports whether it is time to check for the sealed file.
func (f *CachedFile) MayBeSealed() bool {
	if f.Footer != nil {
		return false
	}
	now, due := time.Now().UnixNano(), f.renewal.Load()
	return now >= due && f.renewal.CompareAndSwap(due, now+int64(renewalInterval))
}

// weight is the file's share of maxOpenFiles.
func (f *CachedFile) weight() int {
	if f.Mapping == nil {
		return unmappedWeight
	}
	return 1
}

// acquire adds a reference. False: there was none any more and the file is closed.
func (f *CachedFile) acquire() bool {
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

// Cache keeps files open, each once: a rewrite has the documents of many segments.
//
// The slots map a segment to the file with its documents. A lookup takes no lock. A file
// that has been closed since it was found has no references and is not used. The clock
// algorithm decides which file to close: a hand moves around a ring of the files and
// skips those that were used since it last passed.
type Cache struct {
	fs       vfs.FS
	dir      string
	Limit    int // maxOpenFiles, or less in tests
	Decoders *stored.DecoderCache
	slots    slotTable
	Bound    atomic.Pointer[[16]byte] // only files of this queue are opened; nil: any
	mu       struct {
		sync.Mutex // also guards changes of the slots
		closed     bool
		epoch      uint64                 // see Epoch
		files      map[string]*CachedFile // by path
		ring       []*CachedFile          // the same files
		hand       int
		weight     int // of all
	}
}

// Init makes an empty cache of the files in a directory.
func (c *Cache) Init(fsys vfs.FS, dir string, decoders *stored.DecoderCache) {
	c.fs, c.dir, c.Limit, c.Decoders = fsys, dir, maxOpenFiles, decoders
	c.mu.files = map[string]*CachedFile{}
}

// Get returns the open file of a segment, or nil. The caller puts it back.
func (c *Cache) Get(n ID) *CachedFile {
	f := c.slots.get(n)
	if f == nil || !f.acquire() {
		return nil
	}
	if !f.touched.Load() {
		f.touched.Store(true)
	}
	return f
}

// Put releases a file that get or open returned.
func (c *Cache) Put(f *CachedFile) {
	if f.users.Add(-1) == 0 {
		f.Close()
	}
}

// ErrUnchanged states that the file is the same as tried.
var ErrUnchanged = errors.New("queue: the file has not changed since it was tried")

// Open returns the file that the path names now. The caller puts it back. number is the
// segment, or the first segment of a rewrite. The error is ErrUnchanged if the file is
// the one in tried.
func (c *Cache) Open(path string, number ID, tried *CachedFile) (*CachedFile, error) {
	info, err := c.fs.Stat(path)
	if err != nil {
		return nil, err
	}
	if tried != nil && SameFile(info, tried.Info) {
		return nil, ErrUnchanged
	}
	if f := c.opened(path, info); f != nil {
		return f, nil
	}
	s, err := Open(c.fs, path, number)
	if err != nil {
		return nil, err
	}
	if err := c.checkBound(s); err != nil {
		s.Close()
		return nil, err
	}
	f := &CachedFile{File: s}
	f.users.Store(1)
	f.renewal.Store(time.Now().Add(renewalInterval).UnixNano())
	f.mapSealed()
	return f, nil
}

// opened returns the file from the cache, or nil.
func (c *Cache) opened(path string, info vfs.Info) *CachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.mu.files[path]
	if f == nil || !SameFile(info, f.Info) {
		return nil
	}
	f.users.Add(1)
	return f
}

// Epoch returns a number that changes whenever files are dropped that rewrites replace. A file that
// was found by an older listing must not be kept after that.
func (c *Cache) Epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.epoch
}

// Renew puts f back and returns the sealed file that replaces it, or returns f if there
// is none. The sealed file is kept if f still is: else a rewrite may have replaced both.
func (c *Cache) Renew(f *CachedFile) *CachedFile {
	sealed, err := c.Open(Path(c.dir, f.Number, SealedSuffix), f.Number, f)
	switch {
	case err != nil:
		return f
	case sealed.Footer == nil:
		c.Put(sealed)
		return f
	}
	c.keep(sealed, f.Number, func() bool { return f.place > 0 })
	c.Put(f)
	return sealed
}

// Keep puts a file that Open returned into the cache, as the file of segment n, unless the epoch has
// changed. The caller still has to put the file back.
func (c *Cache) Keep(f *CachedFile, n ID, epoch uint64) {
	c.keep(f, n, func() bool { return c.mu.epoch == epoch })
}

// keep is Keep if the function, which is called with the mutex, returns true.
func (c *Cache) keep(f *CachedFile, n ID, may func() bool) {
	c.mu.Lock()
	var left []*CachedFile
	if !c.mu.closed && may() {
		if f.place == 0 {
			if old := c.mu.files[f.Path]; old != nil {
				left = append(left, c.remove(old))
			}
			c.add(f)
		}
		if old := c.setSlot(n, f); old != nil {
			left = append(left, old)
		}
		for c.mu.weight > c.Limit && len(c.mu.ring) > 1 {
			left = append(left, c.remove(c.victim(f)))
		}
	}
	c.mu.Unlock()
	for _, old := range left {
		c.Put(old)
	}
}

// The methods below require the mutex. The caller puts the files that they remove back
// after it has released the mutex.

// add puts a file into the ring.
func (c *Cache) add(f *CachedFile) {
	f.users.Add(1)
	c.mu.files[f.Path] = f
	c.mu.ring = append(c.mu.ring, f)
	f.place = len(c.mu.ring)
	c.mu.weight += f.weight()
}

// remove removes a file from the cache and returns it.
func (c *Cache) remove(f *CachedFile) *CachedFile {
	for _, n := range f.segments {
		c.slots.set(n, nil)
	}
	f.segments = nil
	delete(c.mu.files, f.Path)
	last := len(c.mu.ring) - 1
	moved := c.mu.ring[last]
	c.mu.ring[f.place-1], moved.place = moved, f.place
	c.mu.ring[last] = nil
	c.mu.ring = c.mu.ring[:last]
	f.place = 0
	c.mu.weight -= f.weight()
	return f
}

// setSlot makes f the file of a segment. If the previous file has no other segment, it is
// removed from the cache and returned.
func (c *Cache) setSlot(n ID, f *CachedFile) *CachedFile {
	old := c.slots.get(n)
	if old == f {
		return nil
	}
	c.slots.set(n, f)
	f.segments = append(f.segments, n)
	if old == nil {
		return nil
	}
	old.segments = slices.DeleteFunc(old.segments, func(m ID) bool { return m == n })
	if len(old.segments) > 0 {
		return nil
	}
	return c.remove(old)
}

// victim returns the file to be closed next, which is not the newest.
func (c *Cache) victim(newest *CachedFile) *CachedFile {
	for {
		c.mu.hand = (c.mu.hand + 1) % len(c.mu.ring)
		if f := c.mu.ring[c.mu.hand]; f != newest && !f.touched.Swap(false) {
			return f
		}
	}
}

// Close empties the cache. Files in use are closed when they are put back.
func (c *Cache) Close() {
	c.take(func(*CachedFile) bool { return true }, true)
}

// Drop removes the files that a rewrite replaces from the cache: entries that the rewrite
// has left out must not be served any more.
func (c *Cache) Drop(run Run) {
	c.take(func(f *CachedFile) bool { return run.Covers(f.Number) && f.Header.Rewrites.Generation < run.Generation }, false)
}

// take removes the files for which the function returns true.
func (c *Cache) take(which func(*CachedFile) bool, closed bool) {
	var taken []*CachedFile
	c.mu.Lock()
	c.mu.closed = c.mu.closed || closed
	c.mu.epoch++
	for _, f := range slices.Backward(c.mu.ring) { // remove moves the last file into the gap
		if which(f) {
			taken = append(taken, c.remove(f))
		}
	}
	c.mu.Unlock()
	for _, f := range taken {
		c.Put(f)
	}
}

// ReplacedBy returns the listed rewrites that replace open files. It begins another epoch.
func (c *Cache) ReplacedBy(l *Listing) map[Run]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.epoch++
	found := map[Run]bool{}
	for _, f := range c.mu.ring {
		for _, run := range l.Covering(f.Number) {
			if f.Header.Rewrites.Generation < run.Generation {
				found[run] = true
			}
		}
	}
	return found
}

// WithDictionary returns an open file with the dictionary, or nil. The caller puts it
// back.
func (c *Cache) WithDictionary(hash codec.DictionaryHash) *CachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.mu.ring {
		if f.Header.Dictionary.Bytes > 0 && f.Header.Dictionary.Hash == hash {
			f.users.Add(1)
			return f
		}
	}
	return nil
}

// Mapped returns the mapped files. The caller puts them back.
func (c *Cache) Mapped() (files []*CachedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.mu.ring {
		if f.Mapping != nil {
			f.users.Add(1)
			files = append(files, f)
		}
	}
	return files
}

// Check verifies the invariants of a cache whose users have put their files back, and returns
// the number of its files.
func (c *Cache) Check() (files int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	weight, slots := 0, 0
	for i, f := range c.mu.ring {
		whole := c.mu.files[f.Path] == f && f.place == i+1 && f.users.Load() == 1 && len(f.segments) > 0
		for _, n := range f.segments {
			whole = whole && c.slots.get(n) == f && f.Header.Holds(n)
		}
		if !whole {
			return len(c.mu.ring), fmt.Errorf("%s has %d users, place %d of %d, and slots %v", f.Path, f.users.Load(), f.place, i+1, f.segments)
		}
		weight += f.weight()
		slots += len(f.segments)
	}
	if pages := c.slots.pages.Load(); pages != nil {
		for _, page := range *pages {
			for i := range page {
				if page[i].Load() != nil {
					slots--
				}
			}
		}
	}
	if slots != 0 || weight != c.mu.weight || len(c.mu.files) != len(c.mu.ring) || weight > c.Limit && len(c.mu.ring) > 1 {
		return len(c.mu.ring), fmt.Errorf("weight %d is recorded as %d, %d files are %d by path, %d slots too few", weight, c.mu.weight, len(c.mu.ring), len(c.mu.files), slots)
	}
	return len(c.mu.ring), nil
}

// slotTable maps segment numbers to open files. A lookup takes no lock and constant time.
// Changes need external locking.
type slotTable struct {
	pages atomic.Pointer[map[ID]*slotPage] // the map is immutable and replaced as a whole
}

type slotPage [1 << slotPageBits]atomic.Pointer[CachedFile]

// slotPageBits sets the page size: 8 KiB, for 64 GiB of documents in segments of the
// default size.
const slotPageBits = 10

func (t *slotTable) get(n ID) *CachedFile {
	pages := t.pages.Load()
	if pages == nil {
		return nil
	}
	page := (*pages)[n>>slotPageBits]
	if page == nil {
		return nil
	}
	return page[n%(1<<slotPageBits)].Load()
}

func (t *slotTable) set(n ID, f *CachedFile) {
	var pages map[ID]*slotPage
	if p := t.pages.Load(); p != nil {
		pages = *p
	}
	page := pages[n>>slotPageBits]
	if page == nil {
		page = new(slotPage)
		next := make(map[ID]*slotPage, len(pages)+1)
		maps.Copy(next, pages)
		next[n>>slotPageBits] = page
		t.pages.Store(&next)
	}
	page[n%(1<<slotPageBits)].Store(f)
}

// checkBound returns an error if the cache is bound to another queue than the file's.
func (c *Cache) checkBound(s *File) error {
	if bound := c.Bound.Load(); bound != nil && s.Header.Queue != *bound {
		return s.Forked(*bound)
	}
	return nil
}
