// Package vfs is the file system interface of the storage engine: small enough to be
// modelled exactly, with three implementations.
//
//	OS          the operating system's
//	NewMem      in memory; simulates power cuts (CrashClone)
//	NewFault    wraps another and injects errors
//
// All file accesses of the engine use an FS, so that a test can stop it at every operation
// and examine the files.
//
// # Concurrency
//
// An FS is safe for concurrent use. ReadAt, Stat, Map, Sync and SyncData of a File may run
// concurrently with each other and with the one goroutine that writes and truncates.
// Append and Close of an AppendMap require a single owner; Sync and Size may run
// concurrently. A Mapping may be read concurrently, and must not be closed before all
// readers are done. Close is idempotent; later calls return fs.ErrClosed.
//
// # State after a crash
//
//	                              process killed | power lost
//	Write                         kept           | any subset of its 4 KiB pages
//	Write, then Sync or SyncData  kept           | kept
//	AppendMap.Append              kept           | any subset of its 4 KiB pages
//	Append, then Sync(through)    kept           | kept below through
//	Create, Link, Remove,         kept           | done or not done
//	Rename, MkdirAll
//	those, then SyncDir           kept           | kept
//	Lock                          released       | released
//
// Pages can also be torn. A lost page in the middle of a file reads as zeros, and the file
// size is between the last synced and the last written one. A synced file is lost if its
// name was not synced: new files need Sync and SyncDir of their directory, new directories
// SyncDir of their parent. Names become durable in any order; each Rename is atomic.
//
// A failed Sync is final. The kernel reports a page that it could not write once and then
// marks it clean, so a second Sync would wrongly succeed: after the first failure Write,
// Truncate and Sync always return it. Another File of the same name, for example in the
// next process, does not know of the failure. Its reads return data that the disk does not
// have, until the pages are evicted, and its Sync succeeds: only data written again, with
// WriteAt or to another file, become durable.
//
// # Append maps
//
// On Linux an AppendMap is a file whose blocks are all allocated and mapped into memory:
// an append is a copy without a system call, and the kernel has the bytes even if the
// process dies. Until Close the file is as long as its capacity and reads as zeros after
// the appended bytes. Readers concurrent with a writer, and those after a killed writer,
// see these zeros, so a record must be distinguishable from zeros by its first bytes.
// On other systems, and if the file system cannot allocate, each Append is a write and
// the file is as long as the appended bytes.
//
// # Watching
//
// WatchDir reports changes in a directory, on Linux by inotify. It is a hint for code that
// polls, which must be correct without it, so it is not part of FS.
//
// # Mappings
//
// Accessing mapped memory that the disk cannot read, or past the end of a file that was
// truncated meanwhile, raises a signal that ends the process. Inside Guard it is an error
// instead. Accessing a closed Mapping also faults, if nothing else was mapped there, so
// Guard does not replace counting readers. Invariant builds distinguish both cases and
// crash.
package vfs
