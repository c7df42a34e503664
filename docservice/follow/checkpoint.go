package follow

import (
	"context"
	"path/filepath"

	"docstore/docservice/collection"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// checkpoint keeps the index at the end of the served manifest, if it has got there, and
// links to the files.
func (f *Follower) checkpoint(ctx context.Context, served publish.Ref) error {
	if f.increments.added {
		return nil // the index may reach the increments while it is copied
	}
	return f.checkpointState(ctx, f.state, f.collection, served)
}

// checkpointState is checkpoint for a state without increments, and its collection.
func (f *Follower) checkpointState(ctx context.Context, state int, c *collection.Collection, served publish.Ref) error {
	path := f.checkpointPath(served.Number)
	if served.Number == 0 || f.record.IsBad(served.Number) {
		return nil
	}
	if _, err := f.fs.Stat(path); err == nil {
		return nil
	}
	// A damaged head file is replaced by the next fetch, which must not wait for a checkpoint.
	head, err := queue.ReadHead(f.fs, f.queuePath(state))
	atEnd := err == nil && c.Status().Position.Next == head.End.Next
	if !atEnd {
		return nil // the index is behind, or includes increments
	}
	m, err := f.manifest(ctx, served)
	if errors.Is(err, bucket.ErrNotExist) {
		return nil // gc has collected it: it cannot be served again
	}
	if err != nil || m.Heads[0].End != head.End {
		return err
	}
	err = f.makeCheckpoint(state, path+newSuffix, m)
	if errors.Is(err, collection.ErrIndexDamaged) {
		// The index is being rebuilt, which takes what follows the manifest, or lacks files until the
		// next start.
		if f.withoutCheckpoint != served.Number {
			f.withoutCheckpoint = served.Number
			f.logger.Warn("there is no checkpoint of a damaged index; a return to this manifest takes longer", "manifest", served.Number, "error", err)
		}
		return nil
	}
	if err != nil {
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

func (f *Follower) makeCheckpoint(state int, path string, m *publish.Manifest) error {
	if err := f.fs.RemoveAll(path); err != nil {
		return err
	}
	if err := collection.CheckpointIndex(f.fs, f.statePath(state), path, f.logger); err != nil {
		return err
	}
	// A later manifest may replace files.
	files := filepath.Join(path, queueName)
	if err := vfs.MakeDir(f.fs, files); err != nil {
		return err
	}
	return publish.LinkFiles(f.fs, m, f.queuePath(state), files)
}

// checkpoints returns the numbers of the manifests that have checkpoints.
func (f *Follower) checkpoints() (numbers []uint64, err error) {
	names, err := f.fs.List(f.dir)
	for _, name := range names {
		if number, ok := parseCheckpoint(name); ok {
			numbers = append(numbers, number)
		}
	}
	return numbers, err
}

func (f *Follower) removeOldCheckpoints() error {
	present, err := f.checkpoints()
	if err != nil {
		return err
	}
	for _, number := range obsoleteCheckpoints(f.record, present, f.options.Checkpoints+1) { // and the served one
		if err := f.removeCheckpoint(number); err != nil {
			return err
		}
	}
	return nil
}

// removeCheckpoint removes a checkpoint. After a crash it is whole, or the next start removes the rest.
func (f *Follower) removeCheckpoint(number uint64) error {
	path := f.checkpointPath(number)
	removed := path + newSuffix
	if err := f.fs.RemoveAll(removed); err != nil {
		return err
	}
	if err := f.fs.Rename(path, removed); err != nil {
		return err
	}
	if err := f.fs.SyncDir(f.dir); err != nil {
		return err
	}
	return f.fs.RemoveAll(removed)
}
