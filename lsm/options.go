package lsm

import (
	"log/slog"

	"github.com/cockroachdb/errors"
	"golang.org/x/time/rate"

	"docstore/bloom"
	"docstore/internal/rare"
	"docstore/internal/vfs"
	"docstore/lsm/internal/memtable"
)

// Durability determines which crashes a completed write survives.
type Durability uint8

// Durabilities.
const (
	// ProcessCrash: the death of the process, including kill -9, loses nothing. A power
	// cut can lose writes since the last Sync; the surviving writes are a prefix.
	ProcessCrash Durability = iota
	// PowerLoss: a write returns after it is durable. Concurrent writers share an
	// fsync.
	PowerLoss
	// None: there is no log. The death of the process loses all writes that were not
	// flushed to a table. Close flushes.
	None
)

// Defaults of Options.
const (
	DefaultMemtableBytes     = 64 << 20
	DefaultFilterBytes       = 64 << 20
	DefaultFalsePositiveRate = bloom.DefaultFalsePositiveRate
)

// A memtable holds MemtableBytes, and any batch, also of the shortest ops.
const (
	_ = uint(memtable.MaxRoomBytes - maxMemtableBytes)
	_ = uint(memtable.MaxRoomBytes - MaxBatchBytes/2*memtable.MaxRunBytes - MaxBatchBytes)
)

// Options configure a store. A nil *Options has all defaults.
type Options struct {
	// MemtableBytes is the size of a memtable and the unit of the size-tiered rule. Two
	// memtables can be in use: one is filled while the previous one is flushed. The
	// default is DefaultMemtableBytes.
	MemtableBytes int64
	// FilterBytes is the memory for Bloom filters. The default is DefaultFilterBytes.
	// If negative, no filter is kept in memory, and lookups search every table whose
	// key range includes the key. Without a Budget, the tags of keys, which make lookups
	// of existing keys faster, take at most the same memory: about a byte for each entry
	// of the blocks that lookups have read.
	FilterBytes int64
	// FalsePositiveRate is the fraction of lookups of missing keys for which a filter
	// does not exclude the table. The default is DefaultFalsePositiveRate.
	FalsePositiveRate float64
	// MergeRule determines when tables are merged. The default is SizeTiered.
	MergeRule MergeRule
	// Durability determines which crashes a write survives. The default is
	// ProcessCrash.
	Durability Durability
	// ReadOnly opens the store without locking and without writing, also while another
	// process writes, after a crash, and on a read-only file system. The DB shows the
	// state at the time of Open.
	ReadOnly bool
	// Follow is ReadOnly restricted to flushed tables; Refresh loads the tables that
	// the writer has flushed since.
	Follow bool
	// Obsolete is called at the start of a flush or merge, and returns a function that
	// reports whether an entry may be removed. The flush or merge calls that for each entry
	// which it writes, and treats an obsolete one as deleted; snapshots and iterators that
	// are open keep it. Once an entry is obsolete it must remain so. Obsolete may be called
	// concurrently; key and value are valid during the call. The default is none.
	Obsolete func() (obsolete func(key, value []byte) bool)
	// MergeRate limits the bytes per second that merges write; stores may share it. A merge that
	// is part of a flush is not limited. While so many tables wait for merges that writes would
	// soon be slowed, it is ignored. The default is no limit.
	MergeRate *rate.Limiter
	// Budget is memory shared with other stores. The default is none.
	Budget *Budget
	// Logger receives background events. The default discards them.
	Logger *slog.Logger
	// FS is the file system. The default is vfs.OS.
	FS vfs.FS
}

// resolve fills in the defaults and reports all invalid options.
func (o *Options) resolve() (Options, error) {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.MemtableBytes == 0 {
		filled.MemtableBytes = rare.Limit[int64]("memtable", DefaultMemtableBytes, minMemtableBytes)
	}
	switch {
	case filled.FilterBytes == 0:
		filled.FilterBytes = DefaultFilterBytes
	case filled.FilterBytes < 0:
		filled.FilterBytes = 0
	}
	if filled.FalsePositiveRate == 0 {
		filled.FalsePositiveRate = DefaultFalsePositiveRate
	}
	if filled.Logger == nil {
		filled.Logger = slog.New(slog.DiscardHandler)
	}
	if filled.FS == nil {
		filled.FS = vfs.OS
	}
	filled.ReadOnly = filled.ReadOnly || filled.Follow

	err := (&bloom.Options{FalsePositiveRate: filled.FalsePositiveRate}).Validate()
	if n := filled.MemtableBytes; n < minMemtableBytes || n > maxMemtableBytes {
		err = errors.CombineErrors(err, errors.Newf("lsm: memtable of %d bytes, want %d to %d", n, minMemtableBytes, maxMemtableBytes))
	}
	if filled.MergeRule > MergeNever {
		err = errors.CombineErrors(err, errors.Newf("lsm: unknown merge rule %d", filled.MergeRule))
	}
	if r := filled.MergeRate; r != nil && r.Burst() <= 0 {
		err = errors.CombineErrors(err, errors.Newf("lsm: a merge rate with a burst of %d bytes, want at least 1", r.Burst()))
	}
	if filled.Durability > None {
		err = errors.CombineErrors(err, errors.Newf("lsm: unknown durability %d", filled.Durability))
	}
	return filled, err
}
