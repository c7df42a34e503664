package queue

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
)

// Bounds of the cache.
const (
	maxOpenFiles = 1024
	// maxHeldDictionaryBytes bounds the dictionaries of the files in the cache.
	// Files with the same dictionary share it.
	maxHeldDictionaryBytes = 64 << 20
)

// cachedFile is an open segment with what decodes its documents. It is closed
// when nobody uses it any more; the cache itself is one of the users.
type cachedFile struct {
	*segmentFile
	decoder decoder // nil: this build lacks the codec
	held    *heldDecoder
	users   atomic.Int64
	used    atomic.Int64 // the cache's clock when it was used last
	// renewal is when to look whether the sealed file has taken this one's place,
	// if it is not sealed; Unix nanoseconds.
	renewal atomic.Int64
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

// heldDecoder is a decoder that files with the same codec and dictionary share.
type heldDecoder struct {
	key     decoderKey
	decoder decoder
	bytes   int
	files   int // open files that use it
}

type decoderKey struct {
	codec      codecID
	dictionary DictionaryHash
}

// fileCache keeps segments open.
//
// Looking up takes no lock: current is a map that is never changed, only
// replaced. A file found in it may have been evicted in between; then its users
// are down to none and it is not to be used.
type fileCache struct {
	fs      vfs.FS
	dir     string
	current atomic.Pointer[map[SegmentID]*cachedFile]
	bound   atomic.Pointer[[16]byte] // the queue whose files alone are opened; nil: any
	clock   atomic.Int64             // counts openings
	mu      struct {
		sync.Mutex // guards the replacement of current, too
		closed     bool
		decoders   map[decoderKey]*heldDecoder
		heldBytes  int
	}
}

func (c *fileCache) init(fsys vfs.FS, dir string) {
	c.fs, c.dir = fsys, dir
	c.current.Store(&map[SegmentID]*cachedFile{})
	c.mu.decoders = map[decoderKey]*heldDecoder{}
}

// get returns the open file of a segment, to be put back, or nil.
func (c *fileCache) get(n SegmentID) *cachedFile {
	f := (*c.current.Load())[n]
	if f == nil {
		return nil
	}
	for {
		users := f.users.Load()
		if users == 0 {
			return nil
		}
		if f.users.CompareAndSwap(users, users+1) {
			break
		}
	}
	if now := c.clock.Load(); f.used.Load() != now {
		f.used.Store(now)
	}
	return f
}

// put gives back what get, open or keep returned.
func (c *fileCache) put(f *cachedFile) {
	if f.users.Add(-1) > 0 {
		return
	}
	_ = f.close() // it was read only
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(f.held)
}

// open opens the segment's file with the suffix, outside of the cache. It
// returns nil if that is the file tried, unchanged since it was opened.
func (c *fileCache) open(n SegmentID, suffix string, tried *cachedFile) (*cachedFile, error) {
	path := segmentPath(c.dir, n, suffix)
	if tried != nil {
		info, err := c.fs.Stat(path)
		if err != nil {
			return nil, err
		}
		if sameFile(info, tried.info) {
			return nil, nil
		}
	}
	s, err := openSegmentFile(c.fs, path, n)
	if err != nil {
		return nil, err
	}
	return c.admit(s)
}

// admit makes what is needed to fetch documents from an open file. Where that
// fails the file is closed.
func (c *fileCache) admit(s *segmentFile) (*cachedFile, error) {
	if err := c.admits(s); err != nil {
		s.file.Close()
		return nil, err
	}
	f := &cachedFile{segmentFile: s}
	f.users.Store(1)
	f.used.Store(c.clock.Add(1))
	f.renewal.Store(time.Now().Add(renewalInterval).UnixNano())
	if err := c.hold(f); err != nil {
		s.file.Close()
		return nil, err
	}
	f.mapSealed()
	return f, nil
}

// hold finds or makes the decoder of a file.
func (c *fileCache) hold(f *cachedFile) error {
	key := decoderKey{f.header.codec, f.header.dictionary.hash}
	c.mu.Lock()
	h := c.mu.decoders[key]
	if h != nil {
		h.files++
	}
	c.mu.Unlock()
	if h == nil {
		var err error
		if h, err = f.newDecoder(key); err != nil {
			return err
		}
		c.mu.Lock()
		if there := c.mu.decoders[key]; there != nil {
			h = there
		} else {
			c.mu.decoders[key] = h
			c.mu.heldBytes += h.bytes
		}
		h.files++
		c.mu.Unlock()
	}
	f.held, f.decoder = h, h.decoder
	return nil
}

// newDecoder makes the decoder of the file's documents; none if this build
// lacks the codec, for documents that are stored raw can be read all the same.
func (s *segmentFile) newDecoder(key decoderKey) (*heldDecoder, error) {
	content, err := s.dictionary()
	if err != nil {
		return nil, err
	}
	h := &heldDecoder{key: key, bytes: len(content)}
	if codec, err := codecByID(key.codec); err == nil {
		if h.decoder, err = codec.newDecoder(content); err != nil {
			return nil, s.corruption(headerBytes, err)
		}
	}
	return h, nil
}

// release gives up a file's decoder. The mutex must be held.
func (c *fileCache) release(h *heldDecoder) {
	h.files--
	if h.files == 0 {
		delete(c.mu.decoders, h.key)
		c.mu.heldBytes -= h.bytes
	}
}

// renew returns the sealed file in the place of f, which it puts back, and f
// itself if there is none.
func (c *fileCache) renew(f *cachedFile) *cachedFile {
	sealed, err := c.open(f.number, sealedSuffix, f)
	switch {
	case err != nil || sealed == nil:
		return f
	case sealed.footer == nil:
		c.put(sealed)
		return f
	}
	sealed.users.Add(1)
	c.keep(sealed)
	c.put(f)
	return sealed
}

// keep puts a file that open returned into the cache, in the place of the one
// that was there.
func (c *fileCache) keep(f *cachedFile) {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		c.put(f)
		return
	}
	next := maps.Clone(*c.current.Load())
	old := next[f.number]
	next[f.number] = f
	c.current.Store(&next)
	c.mu.Unlock()
	if old != nil {
		c.put(old)
	}
	for old = c.evict(f); old != nil; old = c.evict(f) {
		c.put(old)
	}
}

// evict takes the file out of the cache that was not used for longest, unless
// the cache is within its bounds. It spares the newest one.
func (c *fileCache) evict(newest *cachedFile) *cachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := *c.current.Load()
	if len(files) <= maxOpenFiles && c.mu.heldBytes <= maxHeldDictionaryBytes {
		return nil
	}
	var oldest *cachedFile
	for _, f := range files {
		if f != newest && (oldest == nil || f.used.Load() < oldest.used.Load()) {
			oldest = f
		}
	}
	if oldest != nil {
		next := maps.Clone(files)
		delete(next, oldest.number)
		c.current.Store(&next)
	}
	return oldest
}

// close empties the cache. Files in use are closed when they are put back.
func (c *fileCache) close() {
	c.mu.Lock()
	c.mu.closed = true
	files := *c.current.Swap(&map[SegmentID]*cachedFile{})
	c.mu.Unlock()
	for _, f := range files {
		c.put(f)
	}
}

// withDictionary returns an open file whose segment holds the dictionary with
// the hash, to be put back, or nil.
func (c *fileCache) withDictionary(hash DictionaryHash) *cachedFile {
	for n, f := range *c.current.Load() {
		if f.header.dictionary.bytes == 0 || f.header.dictionary.hash != hash {
			continue
		}
		if f := c.get(n); f != nil {
			return f
		}
	}
	return nil
}
