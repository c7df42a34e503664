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
	waiting *time.Timer // for the record at the start
	running sync.WaitGroup
	closing sync.Once
	closed  error

	// Used by the goroutine of run only, after Open.
	reader     reader
	record     publish.Record // as last read
	current    current        // content of CURRENT
	checked    bool           // the files of the served manifest were checked since Open
	state      int            // number of the state that is served
	collection *collection.Collection
	increments increments
	// withoutCheckpoint is the last manifest for which it was logged that its index is damaged.
	withoutCheckpoint uint64

	// settling is held while settle passes the state of the start to the collection.
	settling struct {
		sync.Mutex
		behind bool // the served collection is, as of SetBehind
	}

	mu struct {
		sync.Mutex
		status  Status
		serving *collection.Collection
		next    *collection.Collection // of a state that is made; nil: none is
		queue   string                 // directory of its files
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
	f.reader = f.newReader()
	if err := f.openCurrent(); err != nil {
		return nil, errors.Wrapf(err, "collection %s", name)
	}
	served := f.current.Ref
	f.increments.added = f.current.Extended
	f.mu.status.Served, f.mu.status.Target = served.Number, served.Number
	f.mu.status.Current = f.now()
	f.mu.start, f.settling.behind = start{opened: f.now(), kept: f.current.Goal}, true
	f.serveState()
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.running.Go(func() { f.run(ctx, served) })
	f.waiting = time.AfterFunc(startWait, f.settle)
	return f, nil
}

// newReader returns a reader for a goroutine.
func (f *Follower) newReader() reader {
	if f.options.Shard != nil {
		return &feedReader{feed: f.options.Shard.Feed}
	}
	return &logReader{bucket: f.bucket, now: f.now}
}

// Close stops following and closes the collection. It is idempotent.
func (f *Follower) Close() error {
	f.closing.Do(func() {
		f.waiting.Stop()
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
		case errors.Is(err, errRetargeted):
			f.ended(nil, problem)
			continue
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
	if err := f.determineGoal(ctx, target); err != nil {
		return err
	}
	move := nextMove(f.record, *served, f.current.Next, target, f.increments.mustDrop())
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
	if move == advance {
		err = f.advance(ctx, m, target)
	} else {
		err = f.replace(ctx, m, target)
	}
	if err != nil {
		return err
	}
	*served = target
	f.arrived(target, f.increments.number(), !f.aim(target).extends)
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
	f.targetRead(record, target, read, isPartial(f.current.Next, target), !f.aim(target).extends || f.increments.sealed())
	return target, nil
}

// aim returns what the record says about a target.
func (f *Follower) aim(target publish.Ref) aim {
	return aim{target, f.increments.published && f.increments.wanted && target == f.record.Announced}
}

// determineGoal determines the goal of the start, unless it was reached, or determined for this
// target.
func (f *Follower) determineGoal(ctx context.Context, target publish.Ref) error {
	aim := f.aim(target)
	f.settle() // a goal that was reached since the last pass is not given up for this one
	f.mu.Lock()
	first := f.mu.start
	if !first.reached && first.aim != aim {
		f.mu.start.goal = goal{} // it is not known now
	}
	f.mu.Unlock()
	if first.reached {
		return f.forgetGoal()
	}
	if first.aim == aim {
		return nil
	}
	f.settle()
	next := goal{Manifest: target.Number}
	if aim.extends {
		var err error
		if next.Increment, err = f.reader.newest(ctx, target); err != nil {
			return err
		}
	}
	if err := f.change(func(c *current) { c.Goal = next }); err != nil {
		return err
	}
	f.mu.Lock()
	f.mu.start.goal, f.mu.start.aim = next, aim
	f.mu.Unlock()
	f.settle()
	return nil
}

// forgetGoal removes a goal that was reached from CURRENT, after the increments that reach it are
// durable: a server that lost them with power would be ready without them while the bucket is away.
func (f *Follower) forgetGoal() error {
	if f.current.Goal == (goal{}) {
		return nil
	}
	if e := f.increments.extension; e != nil {
		if err := e.Sync(); err != nil {
			return err
		}
	}
	return f.change(func(c *current) { c.Goal = goal{} })
}

// serveState serves the collection of the current state.
func (f *Follower) serveState() {
	f.mu.Lock()
	f.mu.serving, f.mu.queue = f.collection, f.queuePath(f.state)
	f.mu.Unlock()
	f.serve(f.collection)
}
