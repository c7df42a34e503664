package follow

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/docservice/collection"
	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// fetch makes the directory of a state hold the files of a manifest.
func (f *Follower) fetch(ctx context.Context, state int, m *publish.Manifest) error {
	defer f.watchRecord(ctx)()
	var reserved reservation
	defer func() { reserved.release() }()
	replica := publish.NewReplica(f.bucket, f.queuePath(state), &publish.Options{
		FS: f.fs, Now: f.now, Source: f.options.Source, Rate: f.options.Rate, Concurrency: f.options.Concurrency,
		Reserve: func(files int, bytes int64) (err error) {
			f.update(func(s *Status) {
				f.mu.began, s.FetchedFiles, s.FetchFiles, s.FetchedBytes, s.FetchBytes = f.now(), 0, files, 0, bytes
			})
			reserved, err = f.reserve(bytes, m.Number)
			return err
		},
		Progress: func(done, total int64) {
			f.update(func(s *Status) { s.FetchedBytes, s.FetchBytes = done, total })
		},
		Fetched: func(file publish.File, fromSource bool) {
			reserved.use(file.Size)
			f.update(func(s *Status) {
				s.FetchedFiles++
				if fromSource {
					s.PeerBytes += file.Size
				} else {
					s.BucketBytes += file.Size
				}
			})
		},
	})
	return replica.Fetch(ctx, m)
}

// watchRecord reads the record while files are fetched, which may take hours, until the result is
// called. So the status has the last contact and a later target.
func (f *Follower) watchRecord(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	reader := f.newReader()
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctxtime.Sleep(ctx, watchLimit) {
			if record, read, err := reader.load(ctx); err == nil {
				f.targetRead(record, record.Target(f.options.Group), read, false, false)
			}
		}
	})
	return func() {
		cancel()
		reading.Wait()
	}
}

// repair fetches the files of the served manifest that are missing: the collection renames
// damaged ones, and a directory made by CheckpointIndex has none.
func (f *Follower) repair(ctx context.Context, target publish.Ref) error {
	names, err := f.fs.List(f.queuePath(f.state))
	if err != nil {
		return err
	}
	renamed := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, queue.QuarantineSuffix) })
	if f.checked && !renamed {
		return nil
	}
	m, err := f.manifest(ctx, target)
	if err == nil {
		err = f.fetch(ctx, f.state, m)
	}
	f.checked = err == nil
	return err
}

// advance fetches the files of a manifest that the served one continues.
func (f *Follower) advance(ctx context.Context, m *publish.Manifest, target publish.Ref) error {
	if err := f.change(func(c *current) { c.Next = target }); err != nil {
		return err
	}
	err := f.fetch(ctx, f.state, m)
	if errors.Is(err, publish.ErrDiverged) {
		f.logger.Warn("increments are not part of the next manifest; the state is made again", "manifest", target.Number, "error", err)
		return f.replace(ctx, m, target)
	}
	if err != nil {
		return err
	}
	// The state holds increments that the manifest does not include if their segment is not
	// sealed.
	_, err = f.fs.Stat(filepath.Join(f.queuePath(f.state), queue.OpenSegmentName(m.Heads[0].Sealed+1)))
	extended := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.change(func(c *current) { c.Ref, c.Next, c.Extended = target, publish.Ref{}, extended }); err != nil {
		return err
	}
	f.increments.reset(extended, nil)
	return nil
}

// replace opens a collection at another manifest, with its increments if they are wanted, and
// serves it when it is ready.
func (f *Follower) replace(ctx context.Context, m *publish.Manifest, target publish.Ref) error {
	next := f.state + 1
	if err := f.fs.RemoveAll(f.statePath(next)); err != nil {
		return err
	}
	if err := f.prepare(ctx, next, m); err != nil {
		return errors.CombineErrors(err, f.fs.RemoveAll(f.statePath(next)))
	}
	collection, err := f.openState(next, false)
	if err != nil {
		return err
	}
	f.making(collection)
	extension, err := f.complete(ctx, next, collection, m, target)
	f.making(nil)
	if err == nil {
		err = f.change(func(c *current) { *c = current{State: next, Ref: target, Extended: extension != nil, Goal: c.Goal} })
	}
	if err != nil {
		return errors.CombineErrors(err, errors.CombineErrors(collection.Close(), f.fs.RemoveAll(f.statePath(next))))
	}
	before, beforePath := f.collection, f.statePath(f.state)
	f.collection, f.state = collection, next
	f.increments.reset(extension != nil, extension)
	f.serveState()
	f.running.Go(func() {
		ctxtime.Sleep(ctx, f.options.DrainTime)
		if err := errors.CombineErrors(before.Close(), f.fs.RemoveAll(beforePath)); err != nil {
			f.logger.Error("removing the replaced state failed", "dir", beforePath, "error", err)
		}
	})
	return nil
}

// making records the collection of a state that is made, for the status; nil: none is.
func (f *Follower) making(c *collection.Collection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.next = c
}

// complete waits until the collection of a state that is not served includes the manifest, and
// the increments that exist if they are wanted. It returns their Extension, or nil.
func (f *Follower) complete(ctx context.Context, state int, c *collection.Collection, m *publish.Manifest, target publish.Ref) (*publish.Extension, error) {
	aim := f.aim(target)
	if err := f.waitReady(ctx, c, aim); err != nil || !aim.extends {
		return nil, err
	}
	newest, err := f.reader.newest(ctx, target)
	if err != nil || newest == 0 {
		return nil, err
	}
	if err := f.checkpointState(ctx, state, c, target); err != nil {
		return nil, err
	}
	extension, err := f.openExtension(ctx, state, m, target)
	if err != nil {
		return nil, err
	}
	checked := time.Now()
	for extension.Number() < newest && !extension.Sealed() {
		if _, err := extension.Next(ctx, newest); err != nil {
			return nil, err
		}
		if time.Since(checked) >= f.options.PollInterval {
			checked = time.Now()
			if err := f.checkAim(ctx, aim); err != nil {
				return nil, err
			}
		}
	}
	c.SetBehind(false) // its end has moved
	return extension, f.waitReady(ctx, c, aim)
}

// prepare makes the directories of a state: a copy of the nearest checkpoint of the index, if
// there is one, and the files of the manifest.
func (f *Follower) prepare(ctx context.Context, state int, m *publish.Manifest) error {
	nearest, err := f.copyCheckpoint(state, m.Number)
	if err != nil {
		return err
	}
	// The served files first: the collection verifies them, and the Follower replaces
	// damaged ones.
	sources := []string{f.queuePath(f.state)}
	if nearest > 0 {
		sources = append(sources, filepath.Join(f.checkpointPath(nearest), queueName))
	}
	if nearest != m.Number {
		f.logger.Info("there is no checkpoint of the index at this manifest; it is made from an earlier one, or the queue", "manifest", m.Number, "checkpoint", nearest)
	}
	for _, dir := range []string{f.statePath(state), f.queuePath(state)} {
		if err := vfs.MakeDir(f.fs, dir); err != nil {
			return err
		}
	}
	for _, source := range sources {
		if err := publish.LinkFiles(f.fs, m, source, f.queuePath(state)); err != nil {
			return err
		}
	}
	return f.fetch(ctx, state, m)
}

// copyCheckpoint copies the nearest sound checkpoint of the index to a state, and returns the number of
// its manifest; 0: there is none. It removes damaged ones, and those that lack files: an earlier build was
// killed while it removed them.
func (f *Follower) copyCheckpoint(state int, target uint64) (nearest uint64, err error) {
	present, err := f.checkpoints()
	if err != nil {
		return 0, err
	}
	for {
		if nearest = nearestCheckpoint(f.record, present, target); nearest == 0 {
			return 0, nil
		}
		// A copy of hard links: the checkpoint stays if this move fails.
		err := collection.CheckpointIndex(f.fs, f.checkpointPath(nearest), f.statePath(state), f.logger)
		if !errors.Is(err, collection.ErrIndexDamaged) {
			return nearest, errors.Wrap(err, "copy the checkpoint of the index")
		}
		f.logger.Warn("a checkpoint of the index is damaged; it is removed", "manifest", nearest, "error", err)
		if err := errors.CombineErrors(f.removeCheckpoint(nearest), f.fs.RemoveAll(f.statePath(state))); err != nil {
			return 0, err
		}
		present = slices.DeleteFunc(present, func(number uint64) bool { return number == nearest })
	}
}

// errRetargeted: the target changed while a collection for the one before was built.
var errRetargeted = errors.New("the target has changed")

// waitReady waits until a collection is ready. It gives up when the target changes.
func (f *Follower) waitReady(ctx context.Context, c *collection.Collection, aim aim) error {
	for {
		limited, cancel := context.WithTimeout(ctx, f.options.PollInterval)
		err := c.WaitReady(limited)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err := f.checkAim(ctx, aim); err != nil {
			return err
		}
	}
}

// checkAim returns errRetargeted if the record says something else than before. While the
// bucket cannot be reached the target stays.
func (f *Follower) checkAim(ctx context.Context, before aim) error {
	if target, err := f.readTarget(ctx); err == nil && f.aim(target) != before {
		return errRetargeted
	}
	return nil
}
