package follow

import (
	"context"
	"path/filepath"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// checkpoint keeps the index at the end of the served manifest, if it is there, and the files
// of the manifest, so that the server can return to it without a download.
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
	files := filepath.Join(path+newSuffix, queueName)
	if err := vfs.MakeDir(f.fs, files); err != nil {
		return err
	}
	if err := f.linkFiles(m, f.queuePath(f.state), files); err != nil {
		return err
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
	numbers, err := f.checkpoints()
	if err != nil {
		return err
	}
	for _, number := range obsoleteCheckpoints(numbers, f.options.Checkpoints) {
		if err := f.fs.RemoveAll(f.checkpointPath(number)); err != nil {
			return err
		}
	}
	return nil
}

// checkpoints returns the manifests that have a checkpoint.
func (f *Follower) checkpoints() (numbers []uint64, err error) {
	names, err := f.fs.List(f.dir)
	for _, name := range names {
		if number, ok := parseCheckpoint(name); ok {
			numbers = append(numbers, number)
		}
	}
	return numbers, err
}
