package follow

import (
	"log/slog"
	"time"

	"docstore/docservice/collection"
	"docstore/internal/vfs"
	"docstore/queue/publish"

	"golang.org/x/time/rate"
)

// Defaults of Options.
const (
	DefaultPollInterval = 500 * time.Millisecond
	DefaultDrainTime    = 10 * time.Second
	DefaultCheckpoints  = 3

	// lastBackoff bounds the pause after repeated failures.
	lastBackoff = 10 * time.Second

	currentName      = "CURRENT"
	statePrefix      = "state-"
	checkpointPrefix = "checkpoint-"
	queueName        = "queue"
	newSuffix        = ".new" // of a checkpoint that is being made or removed
)

// Options configure a Follower. Nil and zero values are the defaults.
type Options struct {
	// Collection configures the collections that are opened. Quarantine is always on.
	Collection collection.Options
	// Shard is the shard to be followed, one of several. Nil: the collection has one.
	Shard *Shard
	// Group is the group of this server.
	Group string
	// PollInterval is the interval at which the record is read. The default is
	// DefaultPollInterval.
	PollInterval time.Duration
	// DrainTime is the time for which a replaced collection stays open for calls in
	// progress. The default is DefaultDrainTime.
	DrainTime time.Duration
	// Checkpoints is the number of earlier manifests whose index is kept, so that the
	// server can return to them at once. The default is DefaultCheckpoints.
	Checkpoints int
	// Source provides files instead of the bucket: other servers of the collection. The
	// default is none.
	Source publish.Source
	// Rate limits the bytes per second that are fetched. The default is no limit.
	Rate *rate.Limiter
	// Concurrency is the number of files that are fetched at the same time. The default is
	// publish.DefaultConcurrency.
	Concurrency int
	// Disk limits the bytes on disk. The default is no limit.
	Disk *Disk
	// MaxStaleness is the maximum time since the Follower last knew that it serves its
	// target, for it to be ready. The default, 0, means no limit.
	MaxStaleness time.Duration
	// Problem returns why the bucket does not answer now; nil: it does. The default is that it
	// is not known before an attempt to follow has failed, which repeats requests for minutes.
	Problem func() error
	// Logger logs moves and failures. The default discards the log.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var options Options
	if o != nil {
		options = *o
	}
	if options.PollInterval <= 0 {
		options.PollInterval = DefaultPollInterval
	}
	if options.DrainTime <= 0 {
		options.DrainTime = DefaultDrainTime
	}
	if options.Checkpoints <= 0 {
		options.Checkpoints = DefaultCheckpoints
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	// Files are fetched again, and HEAD comes with the first manifest.
	options.Collection.Quarantine, options.Collection.Published = true, true
	options.Collection.MaxStaleness = 0
	if options.Collection.FS == nil {
		options.Collection.FS = vfs.OS
	}
	if options.Collection.Now == nil {
		options.Collection.Now = time.Now
	}
	return options
}
