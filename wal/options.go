package wal

import "docstore/internal/vfs"

// DefaultCapacity is the default of Options.Capacity, in bytes.
const DefaultCapacity = 64 << 20

// Options configure how a log is created and read. A nil *Options has all defaults.
type Options struct {
	// FS is the file system. The default is vfs.OS.
	FS vfs.FS
	// Capacity is the number of bytes that Create allocates for the log, including
	// header and marks. The default is DefaultCapacity, the minimum CapacityFor(0).
	Capacity int64
	// Number is the log number that Replay requires. The default, 0, accepts any.
	Number uint64
	// Owner identifies the store of the log. All checksums cover it, so a log can be
	// replayed only with the Owner that it was created with. It should be random and
	// unknown to clients of the store: otherwise a payload written by a client could be
	// mistaken for a sync mark when the header is lost. The default is empty.
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
