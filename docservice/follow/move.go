package follow

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

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

// goBack opens a collection at an earlier manifest and serves it when it is ready.
func (f *Follower) goBack(ctx context.Context, m *publish.Manifest, target publish.Ref) error {
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
