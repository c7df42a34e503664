package follow

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"docstore/internal/ctxtime"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// maxManifests is the number of manifests that a Feed keeps: the target, and those that slow
// Followers still serve.
const maxManifests = 3

// FeedOptions configure a Feed. Nil and zero values are the defaults.
type FeedOptions struct {
	// PollInterval is the interval at which the record is read. The default is
	// DefaultPollInterval.
	PollInterval time.Duration
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// Logger logs failures. The default discards the log.
	Logger *slog.Logger
}

// Feed reads the record, the manifests and the increments of a collection, for the
// Followers of its shards on this server: they cost as many requests as one. It is safe for concurrent use.
type Feed struct {
	bucket  bucket.Bucket
	options FeedOptions
	stop    context.CancelFunc
	running sync.WaitGroup

	// reading is held while a manifest is read, so that each is read once.
	reading turn
	kept    []keptManifest // the newest last; guarded by reading
	stream  stream

	mu struct {
		sync.Mutex
		news    news
		newest  newest
		problem error         // of the last attempt to read increments; nil: it succeeded
		changed chan struct{} // closed when version, newest or problem changes
	}
}

// news is the result of reading the record.
type news struct {
	version uint64 // counts changes; 0: nothing was read yet
	record  publish.Record
	read    time.Time // when the record was last read
	err     error     // of the last attempt
}

type keptManifest struct {
	ref      publish.Ref
	manifest *publish.Manifest
}

// OpenFeed starts to read the record. It does not wait for the bucket.
func OpenFeed(b bucket.Bucket, opts *FeedOptions) *Feed {
	f := &Feed{bucket: b}
	if opts != nil {
		f.options = *opts
	}
	if f.options.PollInterval <= 0 {
		f.options.PollInterval = DefaultPollInterval
	}
	if f.options.Now == nil {
		f.options.Now = time.Now
	}
	if f.options.Logger == nil {
		f.options.Logger = slog.New(slog.DiscardHandler)
	}
	f.mu.changed = make(chan struct{})
	f.reading, f.stream.reading = make(turn, 1), make(turn, 1)
	for i := range f.stream.headers {
		f.stream.headers[i] = make(turn, 1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.running.Go(func() { f.run(ctx) })
	return f
}

// Close stops reading. The Followers must be closed before. It is idempotent.
func (f *Feed) Close() {
	f.stop()
	f.running.Wait()
}

// Announced returns the announced manifest and its Incarnation. It waits until the record was
// read for the first time.
func (f *Feed) Announced(ctx context.Context) (m *publish.Manifest, incarnation string, err error) {
	r := feedReader{feed: f}
	record, _, err := r.load(ctx)
	if err != nil {
		return nil, "", err
	}
	if record.Announced.Number == 0 {
		return nil, "", publish.Refused("the collection has no announced manifest: validate and announce one")
	}
	if m, err = r.manifest(ctx, record.Announced); err != nil {
		return nil, "", err
	}
	return m, m.Incarnation(record), nil
}

// run reads the record until the context ends.
func (f *Feed) run(ctx context.Context) {
	own := &logReader{bucket: f.bucket, now: f.options.Now}
	pause := f.options.PollInterval
	for ctx.Err() == nil {
		record, read, err := own.load(ctx)
		if ctx.Err() != nil {
			return
		}
		f.publish(news{record: record, read: read, err: err})
		if err == nil {
			pause = f.options.PollInterval
			if err = f.follow(ctx, own, record, pause/2+rand.N(pause)); ctx.Err() == nil {
				f.followed(err)
			}
		}
		if err != nil && ctx.Err() == nil {
			pause = min(2*pause, lastBackoff)
			ctxtime.Sleep(ctx, pause/2+rand.N(pause))
		}
	}
}

// publish passes news to the Followers.
func (f *Feed) publish(n news) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.mu.news
	n.version = before.version
	if n.err != nil {
		n.record, n.read = before.record, before.read
		if before.err == nil {
			f.options.Logger.Warn("reading the state of the collection failed; retrying", "error", n.err)
		}
	}
	if n.version == 0 || (n.err == nil) != (before.err == nil) || !reflect.DeepEqual(n.record, before.record) {
		n.version++
		f.wakeLocked()
	}
	f.mu.news = n
}

// followed records the result of an attempt to read increments.
func (f *Feed) followed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (err == nil) == (f.mu.problem == nil) {
		return
	}
	if f.mu.problem = err; err != nil {
		f.options.Logger.Warn("reading the increments of the collection failed; retrying", "error", err)
	}
	f.wakeLocked()
}

// problem returns why the increments cannot be read; nil: they can.
func (f *Feed) problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.problem
}

// wakeLocked wakes the Followers. f.mu is held.
func (f *Feed) wakeLocked() {
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
}

// now returns the news, and a channel that is closed when they change.
func (f *Feed) now() (news, newest, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.news, f.mu.newest, f.mu.changed
}

// readManifest returns a manifest, which must not be changed.
func (f *Feed) readManifest(ctx context.Context, ref publish.Ref) (*publish.Manifest, error) {
	if err := f.reading.take(ctx); err != nil {
		return nil, err
	}
	defer f.reading.end()
	if i := slices.IndexFunc(f.kept, func(k keptManifest) bool { return k.ref == ref }); i >= 0 {
		return f.kept[i].manifest, nil
	}
	m, err := publish.ReadManifest(ctx, f.bucket, ref)
	if err != nil {
		return nil, err
	}
	if len(f.kept) == maxManifests {
		f.kept = slices.Delete(f.kept, 0, 1)
	}
	f.kept = append(f.kept, keptManifest{ref, m})
	return m, nil
}

// turn is a lock that is held during requests. Those who wait for it end with their context.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errors.Wrap(ctx.Err(), "wait for another request")
	}
}

func (t turn) end() { <-t }
