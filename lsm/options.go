package lsm

import (
	"log/slog"
	"path/filepath"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/vfs"
)

// Durability says what a write survives once it has returned.
type Durability uint8

// The durabilities.
const (
	// ProcessCrash: the death of the process, kill -9 included, loses nothing.
	// A loss of power may lose the newest writes, those since the last Sync at
	// most, always the newest first.
	ProcessCrash Durability = iota
	// PowerLoss: a write returns when it is on the disk. Writers that wait at
	// the same time share one fsync.
	PowerLoss
	// None: there is no log. What has not been flushed to a table dies with the
	// process; Close flushes.
	None
)

// The defaults of Options.
const (
	DefaultMemtableBytes     = 64 << 20
	DefaultFilterBytes       = 64 << 20
	DefaultFalsePositiveRate = bloom.DefaultFalsePositiveRate

	minMemtableBytes = 4 << 10
	maxMemtableBytes = 1 << 30
)

// Options are how a store is opened. The zero value works, and so does a nil
// *Options.
type Options struct {
	// MemtableBytes is the memory that is filled with writes before they become
	// a table, and the unit of the size-tiered rule. Twice as much may be in use,
	// while a full memtable is written. The default is
	// DefaultMemtableBytes.
	MemtableBytes int64
	// FilterBytes is the memory for Bloom filters. The default is
	// DefaultFilterBytes; below zero there is none, and every table whose key
	// range fits is searched.
	FilterBytes int64
	// FalsePositiveRate is the share of look-ups of missing keys that a filter
	// lets through to its table. The default is DefaultFalsePositiveRate.
	FalsePositiveRate float64
	// MergeRule says when tables are merged. The default is SizeTiered.
	MergeRule MergeRule
	// Durability is what a write survives. The default is ProcessCrash.
	Durability Durability
	// ReadOnly opens without a lock and without writing anything, also beside a
	// writer, after a crash, and where the file system is read-only. What is
	// seen is the store at the time of Open.
	ReadOnly bool
	// Follow is ReadOnly of what has been flushed to tables, and has Refresh
	// take up what a writer has flushed since.
	Follow bool
	// Budget is the memory that this store shares with others. The default is none.
	Budget *Budget
	// Logger gets what happens in the background. The default drops it.
	Logger *slog.Logger
	// FS is the file system. The default is vfs.OS.
	FS vfs.FS
}

// resolve fills in the defaults and reports all that is wrong at once.
func (o *Options) resolve() (Options, error) {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.MemtableBytes == 0 {
		filled.MemtableBytes = DefaultMemtableBytes
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
	if filled.Durability > None {
		err = errors.CombineErrors(err, errors.Newf("lsm: unknown durability %d", filled.Durability))
	}
	return filled, err
}

// environment is what the parts of a store need to know of where they are. It does not
// change once the store is open.
type environment struct {
	fs                vfs.FS
	dir               string
	id                storeID
	falsePositiveRate float64
	logger            *slog.Logger
}

func (e *environment) path(name string) string { return filepath.Join(e.dir, name) }
