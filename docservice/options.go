package docservice

import (
	"log/slog"
	"time"

	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// Defaults of the options.
const (
	DefaultRetryInterval   = time.Second
	DefaultVerifyInterval  = 2 * time.Second
	DefaultQuarantineAfter = 5 * time.Second
	DefaultSweepInterval   = time.Hour

	// DefaultScrubInterval bounds the work for an index that takes less than a second to
	// verify.
	DefaultScrubInterval = time.Minute
	// DefaultScrubBytesPerSecond takes some 2 % of one processor, and of the bandwidth of
	// a disk that reads 200 MB/s: an index of 5 GB is verified every 20 minutes.
	DefaultScrubBytesPerSecond = 4 << 20
)

// CollectionOptions say how a collection is opened. Nil and zero values are
// the defaults.
type CollectionOptions struct {
	// FS is where queue and index lie. The default is vfs.OS.
	FS vfs.FS
	// Logger is told of faults, of their end, and of the first time that the
	// tail has caught up. The default is silence.
	Logger *slog.Logger
	// MemtableBytes, FilterBytes and Budget bound the index's memory, as in
	// lsm.Options. The defaults are lsm's.
	MemtableBytes int64
	FilterBytes   int64
	Budget        *lsm.Budget
	// Decoders keeps the dictionaries of the queue's documents. Collections may share
	// it. The default is a cache of queue.DefaultDecoderBytes.
	Decoders *queue.DecoderCache
	// PollInterval is how often the queue is looked at for more. The default is
	// the queue's.
	PollInterval time.Duration
	// RetryInterval is how long the tail waits after an error before it tries
	// again. The default is DefaultRetryInterval.
	RetryInterval time.Duration
	// VerifyInterval is how often the background pass looks for segments that
	// have arrived or were replaced. The default is DefaultVerifyInterval;
	// negative: no background pass and no quarantine, and faults of documents
	// stay listed.
	VerifyInterval time.Duration
	// Quarantine has the background pass rename a damaged segment N.seg to
	// N.seg.bad, so that rsync, or whatever brings segments, brings it again.
	// Nothing is renamed where the queue is written. The default is to report
	// damage only.
	Quarantine bool
	// QuarantineAfter is for how long a damaged file must not have changed to be
	// set aside. The default is DefaultQuarantineAfter.
	QuarantineAfter time.Duration
	// Cache, if not nil, is loaded with the documents and served from. Close it
	// after the collection.
	Cache *Cache
	// SweepInterval is how often the entries of documents that expired more than
	// an hour ago are taken out of the index. The default is
	// DefaultSweepInterval; negative: never.
	SweepInterval time.Duration
	// ScrubInterval is the pause between two passes of the scrub, which verifies the index
	// to its last byte. The default is DefaultScrubInterval; negative: no scrub.
	ScrubInterval time.Duration
	// ScrubBytesPerSecond is the most that a pass reads. The default is
	// DefaultScrubBytesPerSecond.
	ScrubBytesPerSecond int64
	// ScrubTurn is a channel of capacity 1. Collections that share it scrub one after the
	// other, so that ScrubBytesPerSecond bounds all of them together. The default is one
	// for each collection.
	ScrubTurn chan struct{}
	// MaxStaleness is how old the head file of the queue may be for the collection to be
	// ready. The updater writes the file every second, and docstore-sync copies it, so an
	// old one says that one of them has stopped, and no head file is too old. The default,
	// 0, is no limit.
	MaxStaleness time.Duration
	// Now is the clock by which documents expire. The default is time.Now.
	Now func() time.Time
}

// withDefaults returns the options with every default filled in.
func (o *CollectionOptions) withDefaults() CollectionOptions {
	var filled CollectionOptions
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
		filled.Decoders = queue.NewDecoderCache(queue.DefaultDecoderBytes)
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
	if filled.ScrubTurn == nil {
		filled.ScrubTurn = make(chan struct{}, 1)
	}
	if filled.Now == nil {
		filled.Now = time.Now
	}
	return filled
}
