// Package disk simulates the disk of a host in the virtual time of a test bubble
// (testing/synctest).
//
//	d := disk.New(chance.New(seed), "server-1")
//	p := d.Boot()
//	... server.Options{Host: &host.Host{FS: p}}
//	p.Kill()          // or d.PowerCut()
//	next := d.Boot()  // has what survived
//
// A Process is one incarnation of a program. Several may use a disk at the same time, such as a
// server and rsync. After Kill its operations fail and change nothing, and its locks are free.
//
// An operation takes a time that is drawn by its key; reads of mappings and appends to an
// AppendMap take none, as in memory.
//
// # Faults
//
// Methods of Disk begin a fault and return the function that ends it: a full disk, no free
// inodes, failing reads or writes, slow operations, or none that return. FlipBit damages a file.
// CrashAt ends a process between two operations, or within a write.
//
// All types are safe for concurrent use.
package disk
