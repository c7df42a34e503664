package publish

import (
	"context"
	"crypto/sha256"
	"io"
	"io/fs"
	"path/filepath"

	"docstore/internal/vfs"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"golang.org/x/sync/errgroup"
)

// partSuffix ends the names of files that are being fetched. They are no part of a queue.
const partSuffix = ".part"

// Restore makes the directory of a queue from a manifest. It verifies the digest of each
// file. The directory must be empty or hold an earlier, unfinished Restore of the same
// manifest, which is continued: files that are there and have the right digest are kept.
func Restore(ctx context.Context, b bucket.Bucket, m *Manifest, dir string, opts *Options) error {
	options := opts.withDefaults()
	if err := options.FS.MkdirAll(dir); err != nil {
		return err
	}
	if err := requireOnly(options.FS, dir, m); err != nil {
		return err
	}
	total := m.Bytes()
	var done progress
	group, groupContext := errgroup.WithContext(ctx)
	group.SetLimit(concurrentFiles)
	for _, f := range m.Files {
		group.Go(func() error {
			if err := fetchFile(groupContext, b, f, dir, options.FS); err != nil {
				return errors.Wrapf(err, "restore %s", f.Name)
			}
			done.add(f.Size, total, options.Progress)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := options.FS.SyncDir(d); err != nil {
			return errors.Wrap(err, "publish: restore")
		}
	}
	return nil
}

// requireOnly returns an error if a directory holds files that a Restore of the manifest
// has not made.
func requireOnly(fsys vfs.FS, dir string, m *Manifest) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	allowed := make(map[string]bool, 2*len(m.Files))
	for _, f := range m.Files {
		allowed[f.Name], allowed[f.Name+partSuffix] = true, true
	}
	for _, name := range names {
		if !allowed[name] {
			return refused("%s holds %s, which is not part of manifest %d: give a new or empty directory", dir, name, m.Number)
		}
	}
	return nil
}

// fetchFile puts a file of a manifest into a directory, unless it is there. The name
// becomes durable when the caller syncs the directory.
func fetchFile(ctx context.Context, b bucket.Bucket, f File, dir string, fsys vfs.FS) error {
	path := filepath.Join(dir, f.Name)
	if present, err := hasDigest(ctx, fsys, path, f); err != nil || present {
		return err
	}
	part := path + partSuffix
	if err := fsys.RemoveAll(part); err != nil {
		return err
	}
	file, err := fsys.Create(part)
	if err != nil {
		return err
	}
	err = errors.CombineErrors(copyObject(ctx, b, f, file), file.Close())
	if err != nil {
		return errors.CombineErrors(err, fsys.RemoveAll(part))
	}
	return fsys.Rename(part, path)
}

// copyObject copies an object into a file, verifies it and makes it durable.
func copyObject(ctx context.Context, b bucket.Bucket, f File, file vfs.File) error {
	body, err := b.Get(ctx, f.object(), 0, f.Size)
	if err != nil {
		return err
	}
	defer body.Close()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(hash, file), body)
	if err != nil {
		return err
	}
	if digest := Digest(hash.Sum(nil)); n != f.Size || digest != f.Digest {
		return corrupt("object %s has %d bytes with the digest %s, want %d bytes: it is damaged", f.object(), n, digest, f.Size)
	}
	return file.Sync()
}

// hasDigest reports whether a file is there and is the one that the manifest names. A file
// with other content is an error.
func hasDigest(ctx context.Context, fsys vfs.FS, path string, f File) (bool, error) {
	file, err := fsys.Open(path)
	if isNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, contextReader{ctx, io.NewSectionReader(file, 0, f.Size+1)}); err != nil {
		return false, err
	}
	if digest := Digest(hash.Sum(nil)); digest != f.Digest {
		return false, refused("%s exists with other content: give a new or empty directory", path)
	}
	return true, nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
