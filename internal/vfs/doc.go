// Package vfs is the file system as the storage engine needs it: an interface
// small enough to be modelled exactly, and three implementations.
//
//	OS          the operating system's
//	NewMem      memory, which knows what a loss of power leaves (CrashClone)
//	NewFault    any other, with a hook that lets operations fail
//
// Everything that writes or reads files of the engine goes through an FS, so
// that a test can stop it at every operation and look at what is left.
//
// # Concurrency
//
// An FS may be used by many goroutines at once. Of a File, ReadAt, Stat, Map,
// Sync and SyncData may run beside each other and beside the one goroutine that
// writes and truncates. Of an AppendMap, one goroutine appends and closes; Sync,
// Size and Capacity may run beside it. A Mapping may be read by many goroutines,
// and must not be closed before the last of them is done. Close is idempotent
// everywhere; what is used after its Close is fs.ErrClosed.
//
// # What a crash leaves
//
//	                              process killed | power lost
//	Write                         kept           | any subset of its 4 KiB pages
//	Write, then Sync or SyncData  kept           | kept
//	AppendMap.Append              kept           | any subset of its 4 KiB pages
//	Append, then Sync(through)    kept           | kept below through
//	AppendMap.Restart             kept           | the erased bytes are zeros, of the others pages of before
//	Create, Link, Remove,         kept           | done or not done
//	Rename, MkdirAll
//	those, then SyncDir           kept           | kept
//	Lock                          gone           | gone
//
// A page may also be torn in the middle, a page lost from the middle of a file
// reads as zeros, and the length of a file is then anything between the one last
// synced and the one last written. A file that was synced is still lost if its
// name was not: new files need Sync and SyncDir of their directory, new
// directories SyncDir of their parent. Names may become durable in any order;
// each Rename happens wholly or not at all.
//
// A failed Sync is final. The kernel reports a page that it could not write
// once and then calls it clean, so a second Sync would report a success that is
// none: after the first failure Write, Truncate and Sync return it for ever. Another
// File of the same name, in the next process, knows nothing of that. There reads show
// what the disk does not have, until the memory is needed, and a Sync succeeds: only
// what is written again, with WriteAt or into another file, can be made durable.
//
// # Append maps
//
// On Linux an AppendMap is a file whose blocks are all allocated and mapped into
// memory: appending is a copy, without a system call, and the kernel has the
// bytes whatever becomes of the process. Until Close the file is as long as its
// capacity, and behind what was appended it reads as zeros: readers beside a live
// writer, and whoever opens the file after the writer was killed, meet them, so a
// record must be told from zeros by its first bytes.
// Elsewhere, and on file systems that cannot allocate, each Append is a write and
// the file is as long as what was appended.
//
// A new file's pages have to be found, cleared and mapped, one by one as they are
// appended to, and freed in the end: about a tenth of the processor time of filling an
// index. Restart spares that, for who can tell the bytes of before from
// his own: after a loss of power they may be what any page behind the erased ones holds.
//
// # Watching
//
// WatchDir has the kernel tell when something in a directory changes, on Linux by
// inotify. It is a hint for one who polls, and not a part of FS: what does without
// it must be right without it.
//
// # Mappings
//
// Touching mapped memory that the disk cannot deliver, or that lies behind the
// end of a file cut meanwhile, is a signal that ends the process. Inside Guard it
// is an error instead. The memory of a Mapping that was closed faults too, if
// nothing else has taken its place: Guard is no substitute for counting readers. Builds
// that check invariants tell the two apart and crash.
package vfs
