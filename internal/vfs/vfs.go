package vfs

import (
	"io"
	"time"
)

// FS is a file system as the storage engine needs it. Names are paths in the
// form of the operating system. An FS may be used by many goroutines at once.
//
// Errors about names match io/fs.ErrNotExist and io/fs.ErrExist. Nothing that
// changes a directory (Create, Rename, Remove, Link, MkdirAll) survives loss of
// power before SyncDir on that directory.
type FS interface {
	// Create makes a new, empty file for appending and reading. A file that
	// exists already is an error: the engine overwrites nothing.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenAppend opens an existing file for reading and for appending at its end.
	OpenAppend(name string) (File, error)
	// CreateAppendMap makes a new file of the given capacity in bytes whose
	// appends survive the death of the process without a system call each.
	// Where the file system cannot allocate real blocks it falls back to
	// buffered writes that are handed to the kernel on each Append.
	CreateAppendMap(name string, capacity int64) (AppendMap, error)

	// Remove unlinks a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree; a name that does not exist is no error.
	RemoveAll(name string) error
	// Rename moves a file or directory in one atomic step, over an existing
	// file of the new name. A directory in the way is fs.ErrExist.
	Rename(oldName, newName string) error
	// Link makes newName a hard link to oldName. Where the two lie on
	// different file systems the error matches ErrCrossDevice.
	Link(oldName, newName string) error
	// MkdirAll makes a directory and its missing parents.
	MkdirAll(dir string) error
	// List returns the base names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes the exclusive advisory lock of the named file, making the file
	// if need be and writing holder into it. It never blocks: a lock held by
	// somebody else, in this process or another, is a *LockedError that names
	// them. The lock ends with Close or with the process, however it ends.
	Lock(name, holder string) (io.Closer, error)
	// FreeBytes tells how many bytes can still be written below dir.
	FreeBytes(dir string) (int64, error)
}

// File is an open file. ReadAt may be called from many goroutines at once;
// writing calls need a single owner, but may run beside ReadAt.
type File interface {
	io.ReaderAt
	// Write appends.
	io.Writer
	// WriteAt writes over bytes that are there: beyond the end is an error, and
	// nothing is written.
	io.WriterAt
	io.Closer
	// Stat describes the file as it is now.
	Stat() (Info, error)
	// Sync makes data and metadata durable. After an error the file is lost to
	// writing: never call Sync again on it, here or through another File, and
	// expect a truthful answer.
	Sync() error
	// SyncData makes the data durable, and of the metadata what is needed to
	// read them back (fdatasync).
	SyncData() error
	// Truncate cuts the file to size bytes, of which there must be as many;
	// appends go on from there.
	Truncate(size int64) error
	// Map maps the first size bytes for reading, of which there must be as many:
	// io.ErrUnexpectedEOF. The mapping outlives the File.
	Map(size int64) (Mapping, error)
}

// AppendMap is an append-only file for a write-ahead log. What Append returned
// for survives the death of the process; what Sync returned for survives loss
// of power, too. A single goroutine appends; Sync may run beside it.
type AppendMap interface {
	// Append copies p behind what is there and returns the offset of its first
	// byte. ErrFull: p does not fit into what is left of the capacity; nothing
	// was written.
	Append(p []byte) (offset int64, err error)
	// Sync makes every byte below the offset through durable, which has been
	// appended already.
	Sync(through int64) error
	// Size is the number of bytes appended.
	Size() int64
	// Capacity is the number of bytes that fit in all.
	Capacity() int64
	// Restart begins the file again, at offset 0. Its first erase bytes are zeros
	// when it returns, durably. The others stay, each until something is appended
	// over it, and after a loss of power may be what they ever were since they were
	// last durable. Not every AppendMap can: errors.ErrUnsupported. Nobody may
	// append or sync meanwhile.
	Restart(erase int64) error
	// Close releases the file and cuts it to Size. It does not sync.
	Close() error
}

// Mapping is a read-only view of a file's bytes. Touching Bytes can fault when
// the disk fails or somebody cuts the file: do it inside Guard only, and let no
// slice of it leave the package that owns the mapping.
type Mapping interface {
	Bytes() []byte
	// Advise tells the kernel how the bytes will be read.
	Advise(Advice) error
	// WillRead has what lies between two offsets read from the disk in the background,
	// as far as it is not in memory and the kernel has a mind to.
	WillRead(from, to int64) error
	// Close unmaps. No goroutine may be reading.
	Close() error
}

// Advice is the way a mapping is going to be read.
type Advice uint8

// The ways a mapping can be read.
const (
	AdviseNormal     Advice = iota
	AdviseRandom            // single look-ups: no read-ahead
	AdviseSequential        // a scan: read ahead, forget behind
	AdviseDontNeed          // its pages may go
	// AdvisePresent: what of it is in memory may be read at once. The pages get into
	// the process's map now, and not one by one when they are first touched. Nothing is
	// read from the disk. Elsewhere than on Linux it has no effect.
	AdvisePresent
)

// Info describes a file.
type Info struct {
	Size    int64 // bytes
	ModTime time.Time
	Dir     bool
	ID      FileID
}

// FileID tells files apart whatever they are called: a file that was renamed
// keeps it, a file that was put in another's place has its own. A file system
// may give it out again once its file is gone, so whoever remembers one beyond
// that compares size and time of modification as well.
type FileID struct{ Device, Inode uint64 }
