package follow

import (
	"context"
	"io/fs"
	"path/filepath"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// checkpoint keeps the index at the end of the served manifest, if it has got there, and
// links to the files.
func (f *Follower) checkpoint(ctx context.Context, served publish.Ref) error {
	path := f.checkpointPath(served.Number)
	if served.Number == 0 || f.record.IsBad(served.Number) {
		return nil
	}
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
	if err := f.makeCheckpoint(path+newSuffix, m); err != nil {
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

func (f *Follower) makeCheckpoint(path string, m *publish.Manifest) error {
	if err := f.fs.RemoveAll(path); err != nil {
		return err
	}
	if err := docservice.CheckpointIndex(f.statePath(f.state), path, f.logger); err != nil {
		return err
	}
	// A later manifest may replace files.
	files := filepath.Join(path, queueName)
	if err := vfs.MakeDir(f.fs, files); err != nil {
		return err
	}
	return f.linkFiles(m, f.queuePath(f.state), files)
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
	for _, number := range obsoleteCheckpoints(f.record, present, f.options.Checkpoints) {
		if err := f.fs.RemoveAll(f.checkpointPath(number)); err != nil {
			return err
		}
	}
	return nil
}
