package vfs

import (
	"io"
	"time"
)

// FS is the file system interface of the storage engine. Names are paths of the
// operating system. An FS is safe for concurrent use.
//
// Errors about names match io/fs.ErrNotExist and io/fs.ErrExist. A change of a
// directory (Create, Rename, Remove, Link, MkdirAll) survives a power cut only after
// SyncDir of that directory.
type FS interface {
	// Create creates an empty file for appending and reading. An existing file is an
	// error: the engine never overwrites files.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenAppend opens an existing file for reading and for appending at its end.
	OpenAppend(name string) (File, error)
	// CreateAppendMap creates a file with the given capacity in bytes whose appends
	// survive the death of the process without a system call each. If the file system
	// cannot allocate blocks, it uses buffered writes, passed to the kernel on each
	// Append.
	CreateAppendMap(name string, capacity int64) (AppendMap, error)

	// Remove unlinks a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree. A missing name is not an error.
	RemoveAll(name string) error
	// Rename atomically renames a file or directory and replaces an existing file. If
	// the target is a directory, the error is fs.ErrExist.
	Rename(oldName, newName string) error
	// Link makes newName a hard link to oldName. If they are on different file systems,
	// the error matches ErrCrossDevice.
	Link(oldName, newName string) error
	// MkdirAll creates a directory and its missing parents.
	MkdirAll(dir string) error
	// List returns the base names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes the exclusive advisory lock of the named file, which it creates if
	// necessary, and writes holder into it. It does not block: if the lock is held, in
	// this process or another, the error is a *LockedError that names the holder. The
	// lock ends with Close or with the process.
	Lock(name, holder string) (io.Closer, error)
	// Free returns the free space of the file system of dir.
	Free(dir string) (Space, error)
}

// Space is free space of a file system.
type Space struct {
	Bytes  int64
	Size   int64 // bytes of the file system, free or not
	Inodes int64 // how many files can be created; NoInodeLimit if any number
}

// NoInodeLimit is the number of free inodes if the file system does not limit them.
const NoInodeLimit = -1

// File is an open file. ReadAt is safe for concurrent use. Writing methods require a
// single owner but may run concurrently with ReadAt.
type File interface {
	io.ReaderAt
	// Write appends.
	io.Writer
	// WriteAt overwrites existing bytes. Beyond the end it returns an error and writes
	// nothing.
	io.WriterAt
	io.Closer
	// Stat describes the current file.
	Stat() (Info, error)
	// Sync makes data and metadata durable. An error is final: a later Sync, through
	// this or another File, can succeed although data were lost.
	Sync() error
	// SyncData makes the data durable, and the metadata needed to read them
	// (fdatasync).
	SyncData() error
	// Truncate truncates the file to size bytes, at most its current size; later
	// appends continue there.
	Truncate(size int64) error
	// Map maps the first size bytes for reading. If the file is shorter, the error is
	// io.ErrUnexpectedEOF. The mapping outlives the File.
	Map(size int64) (Mapping, error)
}

// AppendMap is an append-only file for a write-ahead log. Appended bytes survive the
// death of the process, synced bytes also a power cut. Append must not be called
// concurrently with itself; Sync may run concurrently.
type AppendMap interface {
	// Append appends a copy of p and returns the offset of its first byte. After
	// ErrFull, because p exceeds the remaining capacity, nothing was written.
	Append(p []byte) (offset int64, err error)
	// Sync makes the bytes below the offset through, which must be appended, durable.
	Sync(through int64) error
	// Size returns the number of bytes appended.
	Size() int64
	// Close truncates the file to Size and closes it. It does not sync.
	Close() error
}

// Mapping is a read-only view of a file's bytes. Accessing Bytes can fault if the disk
// fails or the file is truncated: do so only inside Guard. No slice of it may leave the
// package that owns the mapping.
type Mapping interface {
	Bytes() []byte
	// Advise tells the kernel the access pattern.
	Advise(Advice) error
	// WillRead requests that the kernel reads the bytes between two offsets in the
	// background. It is only a hint.
	WillRead(from, to int64) error
	// Close unmaps. There must be no readers.
	Close() error
}

// Advice is the access pattern of a mapping.
type Advice uint8

// Access patterns.
const (
	AdviseNormal     Advice = iota
	AdviseRandom            // single lookups: no read-ahead
	AdviseSequential        // a scan: read ahead, then discard
	AdviseDontNeed          // the pages may be discarded
	// AdvisePresent maps the pages that are in the page cache at once, instead of one
	// by one when they are first accessed. Nothing is read from the disk. It has an
	// effect only on Linux.
	AdvisePresent
)

// Info describes a file.
type Info struct {
	Size    int64 // bytes
	ModTime time.Time
	Dir     bool
	ID      FileID
}

// FileID identifies a file independently of its name: a renamed file keeps it, a
// replacement has another. The file system may reuse it after the file is removed, so
// code that keeps a FileID longer must also compare size and modification time.
type FileID struct{ Device, Inode uint64 }
