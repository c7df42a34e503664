package wal

import "docstore/internal/vfs"

// DefaultCapacity is the size of a log, in bytes, if Options names none.
const DefaultCapacity = 64 << 20

// Options are how a log is created and read. The zero value works, and so does
// a nil *Options.
type Options struct {
	// FS is the file system. The default is vfs.OS.
	FS vfs.FS
	// Capacity is the number of bytes that Create allocates for the log, marks
	// and header included. The default is DefaultCapacity, the least is
	// CapacityFor(0).
	Capacity int64
	// Number is the number that Replay demands of the log. The default, 0,
	// takes a log of any number.
	Number uint64
	// Owner identifies the store that the log belongs to. All checksums cover it, so a
	// log can be replayed only with the Owner that it was created with. It should be
	// random and unknown to clients of the store: then nothing that they write is taken
	// for a sync mark when the header of the log is lost. The default is none.
	Owner []byte
}

func (o *Options) withDefaults() Options {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.FS == nil {
		filled.FS = vfs.OS
	}
	if filled.Capacity == 0 {
		filled.Capacity = DefaultCapacity
	}
	return filled
}
