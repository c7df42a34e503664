package collection

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/stored"
)

// Defaults of the options.
const (
	DefaultRetryInterval   = time.Second
	DefaultVerifyInterval  = 2 * time.Second
	DefaultQuarantineAfter = 5 * time.Second
	DefaultSweepInterval   = time.Hour

	// DefaultScrubInterval limits the cost of scrubbing an index that takes less than a
	// second to verify.
	DefaultScrubInterval = time.Minute
	// DefaultScrubBytesPerSecond uses about 2 % of one processor, and of a disk that reads
	// 200 MB/s. It verifies an index of 5 GB every 20 minutes.
	DefaultScrubBytesPerSecond = 4 << 20
)

// Options configure a collection. Nil and zero values select the defaults.
type Options struct {
	// FS is the file system of queue and index. The default is vfs.OS.
	FS vfs.FS
	// Logger logs faults, their repair, and the first time that the tail catches up. The
	// default discards the log.
	Logger *slog.Logger
	// MemtableBytes, FilterBytes and Budget limit the index's memory, as in lsm.Options.
	// The defaults are those of lsm.
	MemtableBytes int64
	FilterBytes   int64
	Budget        *lsm.Budget
	// MergeRate limits the bytes per second that merges of the index write, as in lsm.Options.
	MergeRate *rate.Limiter
	// Decoders caches the dictionaries of the queue's documents. Collections may share it.
	// The default is a cache of queue.DefaultDecoderBytes.
	Decoders *stored.DecoderCache
	// PollInterval is how often the queue is polled for new entries. The default is that of
	// package queue.
	PollInterval time.Duration
	// RetryInterval is how long the tail waits after an error before it retries. The
	// default is DefaultRetryInterval.
	RetryInterval time.Duration
	// VerifyInterval is how often the background pass looks for new or replaced segments.
	// The default is DefaultVerifyInterval. A negative value disables the background pass
	// and the quarantine; faults of documents then stay listed.
	VerifyInterval time.Duration
	// Quarantine makes the background pass rename a damaged segment N.seg to N.seg.bad, so
	// that rsync copies it again. Nothing is renamed in the directory where the queue is
	// written. By default damage is only reported.
	Quarantine bool
	// QuarantineAfter is how long a damaged file must be unchanged before it is
	// quarantined. The default is DefaultQuarantineAfter.
	QuarantineAfter time.Duration
	// Cache, if not nil, is loaded with the documents and read first. Close it after the
	// collection.
	Cache *Cache
	// SweepInterval is how often entries of documents that expired more than an hour ago
	// are removed from the index, apart from those that merges leave out. The default is
	// DefaultSweepInterval; a negative value disables both.
	SweepInterval time.Duration
	// ScrubInterval is the pause between two passes of the scrub, which verifies the whole
	// index. The default is DefaultScrubInterval; a negative value disables the scrub.
	ScrubInterval time.Duration
	// ScrubBytesPerSecond limits the read rate of the scrub. The default is
	// DefaultScrubBytesPerSecond.
	ScrubBytesPerSecond int64
	// ScrubSemaphore is a channel of capacity 1. Collections that share it scrub one at a
	// time, so that ScrubBytesPerSecond limits all of them together. The default is a
	// channel for each collection.
	ScrubSemaphore chan struct{}
	// MaxStaleness is the maximum age of the head file for the collection to be ready. The
	// updater writes the file every second and docstore-sync copies it: if it is old, one
	// of them has stopped. A missing head file is not stale. The default, 0, means no
	// limit.
	MaxStaleness time.Duration
	// Published: the queue's directory holds the files of published manifests. Without a head
	// file the collection is not ready, and with one that names no entry it is ready without
	// segments; by default it is ready at the end of its segments. The history of the queue
	// does not change: entries whose bytes are missing, because the machine has lost power,
	// are added again.
	Published bool
	// Behind: the collection is behind from the start, as of Collection.SetBehind.
	Behind bool
	// Now is the clock for the expiry of documents. The default is time.Now.
	Now func() time.Time
}

// withDefaults returns a copy of the options with the defaults filled in.
func (o *Options) withDefaults() Options {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.FS == nil {
		filled.FS = vfs.OS
	}
	if filled.Logger == nil {
		filled.Logger = slog.New(slog.DiscardHandler)
	}
	if filled.Decoders == nil {
		filled.Decoders = stored.NewDecoderCache(queue.DefaultDecoderBytes)
	}
	if filled.RetryInterval <= 0 {
		filled.RetryInterval = DefaultRetryInterval
	}
	if filled.VerifyInterval == 0 {
		filled.VerifyInterval = DefaultVerifyInterval
	}
	if filled.QuarantineAfter <= 0 {
		filled.QuarantineAfter = DefaultQuarantineAfter
	}
	if filled.SweepInterval == 0 {
		filled.SweepInterval = DefaultSweepInterval
	}
	if filled.ScrubInterval == 0 {
		filled.ScrubInterval = DefaultScrubInterval
	}
	if filled.ScrubBytesPerSecond <= 0 {
		filled.ScrubBytesPerSecond = DefaultScrubBytesPerSecond
	}
	if filled.ScrubSemaphore == nil {
		filled.ScrubSemaphore = make(chan struct{}, 1)
	}
	if filled.Now == nil {
		filled.Now = time.Now
	}
	return filled
}
