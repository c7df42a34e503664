package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
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
	newSuffix        = ".new" // of a checkpoint that is not complete
)

// Options configure a Follower. Nil and zero values are the defaults.
type Options struct {
	// Collection configures the collections that are opened. Quarantine is always on.
	Collection docservice.CollectionOptions
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
	// Logger logs moves and failures. The default discards the log.
	Logger *slog.Logger
}

// Follower serves a collection at its target. It is safe for concurrent use.
type Follower struct {
	name    string
	dir     string
	bucket  bucket.Bucket
	serve   func(*docservice.Collection)
	options Options
	fs      vfs.FS
	now     func() time.Time
	logger  *slog.Logger

	stop    context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
	closed  error

	// Used by the goroutine of run only, after Open.
	log        *publish.Log
	complete   bool // the files of the served manifest were checked since Open
	state      int  // number of the state that is served
	collection *docservice.Collection

	mu struct {
		sync.Mutex
		status Status
	}
}

// Status is the state of a Follower.
type Status struct {
	Announced uint64       // number of the announced manifest; 0: none is known
	Target    uint64       // of the manifest to be served
	Served    uint64       // of the manifest whose files the served collection has; 0: none
	Pin       *publish.Pin // that determines the target; nil: none
	// FetchedBytes of FetchBytes have been downloaded for the move in progress.
	FetchedBytes, FetchBytes int64
	// Error is why the last attempt to follow failed; empty: it succeeded.
	Error string
	// LastContact is the time at which the record was last read.
	LastContact time.Time
}

// current is the content of the file CURRENT.
type current struct {
	State int         `json:"state"`
	Ref   publish.Ref `json:"manifest"` // number 0: nothing has been fetched yet
}

// Open opens the collection in dir, or creates it, passes it to serve, and starts to
// follow. No other program may change dir. serve is called again with each collection that
// replaces the first. Open does not wait for the bucket.
func Open(name string, b bucket.Bucket, dir string, serve func(*docservice.Collection), opts *Options) (*Follower, error) {
	f := &Follower{name: name, dir: dir, bucket: b, serve: serve}
	if opts != nil {
		f.options = *opts
	}
	if f.options.PollInterval <= 0 {
		f.options.PollInterval = DefaultPollInterval
	}
	if f.options.DrainTime <= 0 {
		f.options.DrainTime = DefaultDrainTime
	}
	if f.options.Checkpoints <= 0 {
		f.options.Checkpoints = DefaultCheckpoints
	}
	if f.options.Logger == nil {
		f.options.Logger = slog.New(slog.DiscardHandler)
	}
	f.logger = f.options.Logger.With("collection", name)
	f.options.Collection.Quarantine = true
	if f.fs = f.options.Collection.FS; f.fs == nil {
		f.fs = vfs.OS
	}
	if f.now = f.options.Collection.Now; f.now == nil {
		f.now = time.Now
	}
	present, err := f.openCurrent()
	if err != nil {
		return nil, errors.Wrapf(err, "collection %s", name)
	}
	f.mu.status.Served, f.mu.status.Target = present.Ref.Number, present.Ref.Number
	serve(f.collection)
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.running.Go(func() { f.run(ctx, present.Ref) })
	return f, nil
}

// Status returns the current state.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.status
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

// openCurrent opens the collection that CURRENT names, or the first one.
func (f *Follower) openCurrent() (current, error) {
	if err := vfs.MakeDir(f.fs, f.dir); err != nil {
		return current{}, err
	}
	present, found, err := readCurrent(f.fs, f.dir)
	if err == nil && !found {
		present = current{State: 1}
		err = f.save(present)
	}
	if err != nil {
		return current{}, err
	}
	f.state = present.State
	if err := f.removeOthers(); err != nil {
		return current{}, err
	}
	f.collection, err = f.openState(present.State)
	return present, err
}

// maxCurrentBytes is more than a CURRENT file has.
const maxCurrentBytes = 4 << 10

func readFile(fsys vfs.FS, path string) ([]byte, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, min(info.Size, maxCurrentBytes))
	_, err = file.ReadAt(content, 0)
	return content, err
}

func (f *Follower) save(c current) error {
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(f.fs, filepath.Join(f.dir, currentName), content)
}

func (f *Follower) statePath(state int) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s%04d", statePrefix, state))
}

func (f *Follower) queuePath(state int) string { return filepath.Join(f.statePath(state), queueName) }

func (f *Follower) checkpointPath(number uint64) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s%010d", checkpointPrefix, number))
}

// openState opens the collection of a state, whose directories are created if necessary.
func (f *Follower) openState(state int) (*docservice.Collection, error) {
	for _, dir := range []string{f.statePath(state), f.queuePath(state)} {
		if err := vfs.MakeDir(f.fs, dir); err != nil {
			return nil, err
		}
	}
	return docservice.OpenCollection(f.name, f.queuePath(state), f.statePath(state), &f.options.Collection)
}

// removeOthers removes states other than the served one, and incomplete checkpoints.
func (f *Follower) removeOthers() error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return err
	}
	served := filepath.Base(f.statePath(f.state))
	for _, name := range names {
		leftover := strings.HasPrefix(name, statePrefix) && name != served ||
			strings.HasPrefix(name, checkpointPrefix) && strings.HasSuffix(name, newSuffix)
		if leftover {
			if err := f.fs.RemoveAll(filepath.Join(f.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
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
		f.update(func(s *Status) {
			s.Error, s.FetchBytes, s.FetchedBytes = problem, 0, 0
			if err == nil {
				s.LastContact = f.now()
			}
		})
		// The jitter keeps servers from asking at the same time.
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return
		}
	}
}

func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *Follower) update(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.mu.status)
}

// follow reads the record and moves to the target.
func (f *Follower) follow(ctx context.Context, served *publish.Ref) error {
	target, err := f.readTarget(ctx)
	if err != nil || target.Number == 0 {
		return err
	}
	if target == *served {
		return f.repair(ctx, target)
	}
	m, err := publish.ReadManifest(ctx, f.bucket, target)
	if err != nil {
		return err
	}
	if target.Number > served.Number {
		err = f.forward(ctx, m, *served, target)
	} else {
		err = f.back(ctx, m, target)
	}
	if err != nil {
		return err
	}
	*served = target
	f.update(func(s *Status) { s.Served = target.Number })
	f.logger.Info("serving a manifest", "manifest", target.Number, "documents", m.Documents(), "bytes", m.Bytes())
	return nil
}

// readTarget returns the manifest to be served; number 0: nothing is announced.
func (f *Follower) readTarget(ctx context.Context) (publish.Ref, error) {
	if f.log == nil {
		log, err := publish.OpenLog(ctx, f.bucket, f.now)
		if err != nil {
			return publish.Ref{}, err
		}
		f.log = log
	}
	record, err := f.log.Load(ctx)
	if err != nil {
		return publish.Ref{}, err
	}
	target := record.Target(f.options.Group)
	f.update(func(s *Status) {
		s.Announced, s.Target, s.Pin = record.Announced.Number, target.Number, record.PinOf(f.options.Group)
	})
	return target, nil
}

func (f *Follower) replica(state int) *publish.Replica {
	return publish.NewReplica(f.bucket, f.queuePath(state), &publish.Options{FS: f.fs, Now: f.now, Progress: func(done, total int64) {
		f.update(func(s *Status) { s.FetchedBytes, s.FetchBytes = done, total })
	}})
}

// repair fetches the files of the served manifest that are missing: the collection renames
// damaged ones, and a directory made by CheckpointIndex has none.
func (f *Follower) repair(ctx context.Context, target publish.Ref) error {
	names, err := f.fs.List(f.queuePath(f.state))
	if err != nil {
		return err
	}
	renamed := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, queue.QuarantineSuffix) })
	if f.complete && !renamed {
		return nil
	}
	m, err := publish.ReadManifest(ctx, f.bucket, target)
	if err == nil {
		err = f.replica(f.state).Fetch(ctx, m)
	}
	f.complete = err == nil
	return err
}

// forward fetches the files of a later manifest. If the index is at the end of the served
// one, it makes a checkpoint first.
func (f *Follower) forward(ctx context.Context, m *publish.Manifest, served, target publish.Ref) error {
	if served.Number > 0 {
		if err := f.checkpoint(ctx, served); err != nil {
			return err
		}
	}
	if err := f.replica(f.state).Fetch(ctx, m); err != nil {
		return err
	}
	return f.save(current{f.state, target})
}

// checkpoint keeps the index at the end of the served manifest, if it is there.
func (f *Follower) checkpoint(ctx context.Context, served publish.Ref) error {
	path := f.checkpointPath(served.Number)
	if _, err := f.fs.Stat(path); err == nil {
		return nil
	}
	m, err := publish.ReadManifest(ctx, f.bucket, served)
	if errors.Is(err, bucket.ErrNotExist) {
		return nil // gc has collected it: it cannot be served again
	}
	if err != nil {
		return err
	}
	if position := f.collection.Status().Position; position.Next != m.Head.End.Next {
		return nil // it is still behind
	}
	if err := f.fs.RemoveAll(path + newSuffix); err != nil {
		return err
	}
	if err := docservice.CheckpointIndex(f.statePath(f.state), path+newSuffix, f.logger); err != nil {
		return errors.Wrap(err, "checkpoint the index")
	}
	if err := f.fs.Rename(path+newSuffix, path); err != nil {
		return err
	}
	if err := f.fs.SyncDir(f.dir); err != nil {
		return err
	}
	return f.removeOldCheckpoints()
}

// removeOldCheckpoints keeps the checkpoints of the latest manifests.
func (f *Follower) removeOldCheckpoints() error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		digits, found := strings.CutPrefix(name, checkpointPrefix)
		_, err := strconv.ParseUint(digits, 10, 64)
		return !found || err != nil
	})
	for len(names) > f.options.Checkpoints {
		if err := f.fs.RemoveAll(filepath.Join(f.dir, names[0])); err != nil {
			return err
		}
		names = names[1:]
	}
	return nil
}

// back opens a collection at an earlier manifest and serves it when it is ready.
func (f *Follower) back(ctx context.Context, m *publish.Manifest, target publish.Ref) error {
	next := f.state + 1
	if err := f.fs.RemoveAll(f.statePath(next)); err != nil {
		return err
	}
	if err := f.prepare(ctx, next, m); err != nil {
		return errors.CombineErrors(err, f.fs.RemoveAll(f.statePath(next)))
	}
	collection, err := f.openState(next)
	if err != nil {
		return err
	}
	if err = f.waitReady(ctx, collection, m.Number); err == nil {
		err = f.save(current{next, target})
	}
	if err != nil {
		return errors.CombineErrors(err, errors.CombineErrors(collection.Close(), f.fs.RemoveAll(f.statePath(next))))
	}
	before, beforePath := f.collection, f.statePath(f.state)
	f.collection, f.state = collection, next
	f.serve(collection)
	f.running.Go(func() {
		sleep(ctx, f.options.DrainTime)
		if err := errors.CombineErrors(before.Close(), f.fs.RemoveAll(beforePath)); err != nil {
			f.logger.Error("removing the replaced state failed", "dir", beforePath, "error", err)
		}
	})
	return nil
}

// prepare makes the directories of a state: a checkpoint of the index, if there is one, and
// the files of the manifest.
func (f *Follower) prepare(ctx context.Context, state int, m *publish.Manifest) error {
	switch _, err := f.fs.Stat(f.checkpointPath(m.Number)); {
	case err == nil:
		// A copy of hard links: the checkpoint stays if this move fails.
		if err := docservice.CheckpointIndex(f.checkpointPath(m.Number), f.statePath(state), f.logger); err != nil {
			return errors.Wrap(err, "copy the checkpoint of the index")
		}
	case errors.Is(err, fs.ErrNotExist):
		f.logger.Warn("there is no checkpoint of the index at this manifest; it is built from the queue", "manifest", m.Number)
	default:
		return err
	}
	for _, dir := range []string{f.statePath(state), f.queuePath(state)} {
		if err := vfs.MakeDir(f.fs, dir); err != nil {
			return err
		}
	}
	for _, file := range m.Files {
		err := f.fs.Link(filepath.Join(f.queuePath(f.state), file.Name), filepath.Join(f.queuePath(state), file.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return f.replica(state).Fetch(ctx, m)
}

// errRetargeted: the target changed while a collection for the one before was built.
var errRetargeted = errors.New("the target has changed")

// waitReady waits until a collection is ready. It gives up when the target changes.
func (f *Follower) waitReady(ctx context.Context, collection *docservice.Collection, number uint64) error {
	for {
		limited, cancel := context.WithTimeout(ctx, f.options.PollInterval)
		err := collection.WaitReady(limited)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		// While the bucket cannot be reached the target stays.
		if target, err := f.readTarget(ctx); err == nil && target.Number != number {
			return errRetargeted
		}
	}
}
