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
// server and rsync. After Kill or a power cut its operations fail and change nothing, and its locks
// are free; its mappings can still be read. CrashAt ends a process between two operations, or
// within a write.
//
// An operation takes a time that is drawn by its kind and file. Reads of mappings and appends to
// an AppendMap take none, as in memory.
//
// # Faults
//
// Methods of Disk begin a fault and return the function that ends it: a full disk, no free
// inodes, failing reads, writes or syncs, slow operations, or none that return. FlipBit damages a
// file. Pages of a mapping are always in memory: reading them does not fail.
//
// All types are safe for concurrent use, in a bubble only: Kill and PowerCut let the clock advance.
package disk
