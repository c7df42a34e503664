package follow

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"docstore/docservice/collection"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// Follower serves a collection at its target. It is safe for concurrent use.
type Follower struct {
	name    string
	dir     string
	bucket  bucket.Bucket
	serve   func(*collection.Collection)
	options Options
	fs      vfs.FS
	now     func() time.Time
	logger  *slog.Logger

	stop    context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
	closed  error

	// Used by the goroutine of run only, after Open.
	reader     reader
	record     publish.Record // as last read
	complete   bool           // the files of the served manifest were checked since Open
	state      int            // number of the state that is served
	collection *collection.Collection
	increments increments

	mu struct {
		sync.Mutex
		status  Status
		serving *collection.Collection
		queue   string // directory of its files
		start   start
		began   time.Time // of the fetch in progress
	}
}

// Open opens the collection in dir, or creates it, passes it to serve, and starts to
// follow. No other program may change dir. serve is called again with each collection that
// replaces the first. Open does not wait for the bucket.
func Open(name string, b bucket.Bucket, dir string, serve func(*collection.Collection), opts *Options) (*Follower, error) {
	options := opts.withDefaults()
	if err := options.Shard.check(); err != nil {
		return nil, errors.Wrapf(err, "collection %s", name)
	}
	f := &Follower{
		name: name, dir: dir, bucket: b, serve: serve, options: options,
		fs: options.Collection.FS, now: options.Collection.Now, logger: options.Logger.With("collection", name),
	}
	f.reader = &logReader{bucket: b, now: f.now}
	if options.Shard != nil {
		f.reader = &feedReader{feed: options.Shard.Feed}
	}
	present, err := f.openCurrent()
	if err != nil {
		return nil, errors.Wrapf(err, "collection %s", name)
	}
	f.increments.added = present.Extended
	f.mu.status.Served, f.mu.status.Target = present.Ref.Number, present.Ref.Number
	f.mu.status.Current, f.mu.start.opened = f.now(), f.now()
	f.serveState()
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.running.Go(func() { f.run(ctx, present.Ref) })
	return f, nil
}

// Close stops following and closes the collection. It is idempotent.
func (f *Follower) Close() error {
	f.closing.Do(func() {
		f.stop()
		f.running.Wait()
		f.closed = f.collection.Close()
	})
	return f.closed
}

// run follows the record until the context ends.
func (f *Follower) run(ctx context.Context, served publish.Ref) {
	pause, problem := f.options.PollInterval, ""
	for {
		err := f.follow(ctx, &served)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause, problem = f.options.PollInterval, ""
		default:
			pause = min(2*pause, lastBackoff)
			if err.Error() != problem {
				problem = err.Error()
				f.logger.Error("following the collection's manifests failed; retrying, and serving the last one", "manifest", served.Number, "error", err)
			}
		}
		f.ended(err, problem)
		// The jitter keeps servers from asking at the same time.
		if !f.pause(ctx, served, pause/2+rand.N(pause)) {
			return
		}
	}
}

// follow reads the record and moves to the target.
func (f *Follower) follow(ctx context.Context, served *publish.Ref) error {
	target, err := f.readTarget(ctx)
	if err != nil || target.Number == 0 {
		return err
	}
	move := nextMove(f.record, *served, target, f.increments.mustDrop())
	if move == stay {
		// Now, so that a rollback need not wait for it.
		return errors.CombineErrors(f.repair(ctx, target), f.checkpoint(ctx, target))
	}
	m, err := f.manifest(ctx, target)
	if err != nil {
		return err
	}
	if err := f.checkpoint(ctx, *served); err != nil {
		return err
	}
	extended := false
	if move == advance {
		extended, err = f.advance(ctx, m, target)
	} else {
		err = f.replace(ctx, m, target)
	}
	if err != nil {
		return err
	}
	*served = target
	f.increments.reset()
	f.increments.added = extended
	f.arrived(target)
	f.logger.Info("serving a manifest", "manifest", target.Number, "documents", m.Documents(), "bytes", m.Bytes())
	return nil
}

// readTarget returns the manifest to be served; number 0: nothing is announced.
func (f *Follower) readTarget(ctx context.Context) (publish.Ref, error) {
	record, read, err := f.reader.load(ctx)
	if err != nil {
		return publish.Ref{}, err
	}
	f.record = record
	target := record.Target(f.options.Group)
	f.increments.published, f.increments.wanted = record.Increments, record.Extends(f.options.Group)
	f.targetRead(record, target, read)
	return target, nil
}

// serveState serves the collection of the current state.
func (f *Follower) serveState() {
	f.mu.Lock()
	f.mu.serving, f.mu.queue = f.collection, f.queuePath(f.state)
	f.mu.Unlock()
	f.serve(f.collection)
}
