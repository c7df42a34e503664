package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// directory caches the listing of a queue's directory. Listing takes milliseconds with
// thousands of segments; validating a cached listing takes one stat.
type directory struct {
	fs      vfs.FS
	path    string
	listing sync.Mutex // held while the directory is listed
	current atomic.Pointer[cachedListing]
}

// cachedListing is an immutable listing.
type cachedListing struct {
	segment.Listing
	info   vfs.Info  // of the directory, from before the listing
	listed time.Time // time of the listing, after info
}

const (
	// listingMaxAge bounds the use of a listing. The modification time of a directory has
	// a granularity of up to two seconds on some file systems, and a network file system
	// may report an old one.
	listingMaxAge = time.Second
	// timestampTick exceeds the granularity of modification times on a local disk: the
	// kernel's clock ticks every 1 to 10 ms.
	timestampTick = 50 * time.Millisecond
)

// current reports whether the listing may be used: it is young, and the modification time
// of the directory is the same.
func (k *cachedListing) current(info vfs.Info, now time.Time) bool {
	age := now.Sub(k.listed)
	return segment.SameFile(k.info, info) && age >= 0 && age < listingMaxAge
}

// settled reports whether every change after the listing also changes the modification
// time.
func (k *cachedListing) settled() bool { return k.listed.Sub(k.info.ModTime) >= timestampTick }

// look returns a listing. A certain one has every change made before the call, as far as
// the file system reports changes. Otherwise a change in the same clock tick as an
// earlier one may be missing.
func (d *directory) look(certain bool) (*cachedListing, error) {
	if k, err := d.kept(certain); k != nil || err != nil {
		return k, err
	}
	d.listing.Lock()
	defer d.listing.Unlock()
	if k, err := d.kept(certain); k != nil || err != nil { // listed while this call waited
		return k, err
	}
	info, err := d.fs.Stat(d.path)
	if err != nil {
		return nil, err
	}
	k := &cachedListing{info: info, listed: time.Now()}
	if k.Listing, err = segment.List(d.fs, d.path); err != nil {
		return nil, err
	}
	d.current.Store(k)
	return k, nil
}

// kept returns the cached listing if it can be used, otherwise nil.
func (d *directory) kept(certain bool) (*cachedListing, error) {
	k := d.current.Load()
	if k == nil || certain && !k.settled() {
		return nil, nil
	}
	info, err := d.fs.Stat(d.path)
	if err != nil || !k.current(info, time.Now()) {
		return nil, err
	}
	return k, nil
}
