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
	err := f.replica(f.state).Fetch(ctx, m)
	if errors.Is(err, publish.ErrDiverged) {
		f.logger.Warn("increments are not part of the next manifest; the state is made again", "manifest", target.Number, "error", err)
		return f.goBeside(ctx, m, served, target)
	}
	if err != nil {
		return err
	}
	return f.save(current{State: f.state, Ref: target})
}

// goBeside opens a collection at another manifest and serves it when it is ready.
func (f *Follower) goBeside(ctx context.Context, m *publish.Manifest, served, target publish.Ref) error {
	if served.Number > 0 {
		if err := f.checkpoint(ctx, served); err != nil {
			return err
		}
	}
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
		err = f.save(current{State: next, Ref: target})
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

// prepare makes the directories of a state: the nearest checkpoint of the index, if there is
// one, and the files of the manifest, as hard links if they exist locally.
func (f *Follower) prepare(ctx context.Context, state int, m *publish.Manifest) error {
	numbers, err := f.checkpoints()
	if err != nil {
		return err
	}
	sources := []string{f.queuePath(f.state)}
	if nearest := nearestCheckpoint(f.record, numbers, m.Number); nearest > 0 {
		// A copy of hard links: the checkpoint stays if this move fails.
		if err := docservice.CheckpointIndex(f.checkpointPath(nearest), f.statePath(state), f.logger); err != nil {
			return errors.Wrap(err, "copy the checkpoint of the index")
		}
		sources = append(sources, filepath.Join(f.checkpointPath(nearest), queueName))
	} else {
		f.logger.Warn("there is no checkpoint of the index at this manifest or before it; it is built from the queue", "manifest", m.Number)
	}
	for _, dir := range []string{f.statePath(state), f.queuePath(state)} {
		if err := vfs.MakeDir(f.fs, dir); err != nil {
			return err
		}
	}
	for _, source := range sources {
		if err := f.linkFiles(m, source, f.queuePath(state)); err != nil {
			return err
		}
	}
	return f.replica(state).Fetch(ctx, m)
}

// linkFiles makes hard links to the files of a manifest that a directory has.
func (f *Follower) linkFiles(m *publish.Manifest, from, to string) error {
	for _, file := range m.Files {
		source := filepath.Join(from, file.Name)
		there, err := queue.DescribeSealed(f.fs, source)
		if err != nil || there.Size != file.Size || publish.Hex16(there.Footer) != file.Footer {
			continue // it is missing, or another file of this name: it is fetched
		}
		err = f.fs.Link(source, filepath.Join(to, file.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
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
