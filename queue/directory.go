package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
)

// directory keeps the listing of a queue's directory. Listing takes milliseconds where
// there are thousands of segments; a kept listing costs one stat of the directory.
type directory struct {
	fs      vfs.FS
	path    string
	listing sync.Mutex // held while the directory is listed
	current atomic.Pointer[keptListing]
}

// keptListing is a listing that does not change any more.
type keptListing struct {
	listing
	info   vfs.Info  // of the directory, taken before it was listed
	listed time.Time // when it was listed, after info was taken
}

const (
	// listingMaxAge bounds how long a listing is kept. The modification time of a
	// directory has a granularity of up to two seconds on some file systems, and a
	// network file system may report an old one.
	listingMaxAge = time.Second
	// timestampTick is longer than two changes of a directory can have the same
	// modification time on a local disk: the kernel's clock ticks every 1 to 10 ms.
	timestampTick = 50 * time.Millisecond
)

// current tells whether the listing may still be right: the directory has not changed
// by what its description says.
func (k *keptListing) current(info vfs.Info, now time.Time) bool {
	age := now.Sub(k.listed)
	return sameFile(k.info, info) && age >= 0 && age < listingMaxAge
}

// settled tells whether any change after the listing has changed the modification time.
func (k *keptListing) settled() bool { return k.listed.Sub(k.info.ModTime) >= timestampTick }

// look returns a listing. If it is to be certain, it has every change that was made
// before the call, as far as the file system reports changes. If not, a change in the
// same tick of the file system's clock as the one before may be missing.
func (d *directory) look(certain bool) (*keptListing, error) {
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
	k := &keptListing{info: info, listed: time.Now()}
	if k.listing, err = list(d.fs, d.path); err != nil {
		return nil, err
	}
	d.current.Store(k)
	return k, nil
}

// kept returns the kept listing if it will do, else nil.
func (d *directory) kept(certain bool) (*keptListing, error) {
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
