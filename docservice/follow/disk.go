package follow

import (
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"docstore/internal/vfs"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// Disk limits the bytes below a data directory that Followers share. It counts each file
// once, whatever the number of its names: states and checkpoints share files. The index of
// a served state grows without asking; only downloads are refused.
type Disk struct {
	fs    vfs.FS
	dir   string
	limit int64

	mu struct {
		sync.Mutex
		reserved int64 // for files that are being fetched
	}
}

// NewDisk returns a limit for the files below dir.
func NewDisk(fsys vfs.FS, dir string, limit int64) *Disk {
	return &Disk{fs: fsys, dir: dir, limit: limit}
}

// Used returns the bytes of the files below the directory, without those that are being
// fetched.
func (d *Disk) Used() (int64, error) {
	var total int64
	return total, d.walk(d.dir, make(map[vfs.FileID]bool), &total)
}

func (d *Disk) walk(dir string, seen map[vfs.FileID]bool, total *int64) error {
	names, err := d.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := d.fs.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), publish.IsPart(name):
		case err != nil:
			return err
		case info.Dir:
			if err := d.walk(path, seen, total); err != nil {
				return err
			}
		case !seen[info.ID]:
			seen[info.ID] = true
			*total += info.Size
		}
	}
	return err
}

// reservation is space for files that are being fetched. The zero value has none.
type reservation struct {
	disk  *Disk
	bytes int64
}

// tryReserve reserves space. free is the space that is left; if it is too small, nothing is
// reserved.
func (d *Disk) tryReserve(bytes int64) (r reservation, free int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	used, err := d.Used()
	if free = d.limit - used - d.mu.reserved; err != nil || free < bytes {
		return reservation{}, free, err
	}
	d.mu.reserved += bytes
	return reservation{d, bytes}, free, nil
}

// use records that a file is complete, and counted by Used.
func (r *reservation) use(bytes int64) {
	if r.disk == nil {
		return
	}
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	bytes = min(bytes, r.bytes)
	r.bytes -= bytes
	r.disk.mu.reserved -= bytes
}

func (r *reservation) release() { r.use(math.MaxInt64) }

// ErrDiskLimit is the error if a manifest needs more than Options.Disk allows.
var ErrDiskLimit = errors.New("the limit of the data directory is exceeded")

// reserve reserves space for the files of a manifest. It removes checkpoints, the oldest
// first, if necessary.
func (f *Follower) reserve(bytes int64, number uint64) (reservation, error) {
	d := f.options.Disk
	if d == nil {
		return reservation{}, nil
	}
	present, err := f.checkpoints()
	if err != nil {
		return reservation{}, err
	}
	for {
		r, free, err := d.tryReserve(bytes)
		if err != nil || r.disk != nil {
			return r, err
		}
		present = slices.DeleteFunc(present, func(n uint64) bool { return n == number })
		if len(present) == 0 {
			return reservation{}, errors.Wrapf(ErrDiskLimit, "manifest %d needs %d bytes more, and %d of the %d bytes are free: raise --max-disk, or pin an earlier manifest",
				number, bytes, max(free, 0), d.limit)
		}
		f.logger.Warn("removing a checkpoint to make space for a manifest", "checkpoint", present[0], "manifest", number)
		if err := f.removeCheckpoint(present[0]); err != nil {
			return reservation{}, err
		}
		present = present[1:]
	}
}
