package publish

import (
	"context"
	"crypto/sha256"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"golang.org/x/sync/errgroup"
)

// partSuffix ends the names of files that are being fetched. Readers of a queue ignore them.
const partSuffix = ".part"

// Replica makes a directory hold the files of a manifest. Readers of the queue may use
// the directory concurrently: a file gets its name after it is complete and verified, and
// files that a rewrite replaces are removed after the rewrite has its name. A Replica is
// not safe for concurrent use.
type Replica struct {
	bucket  bucket.Bucket
	dir     string
	options Options
}

// NewReplica returns a Replica of a bucket in a directory.
func NewReplica(b bucket.Bucket, dir string, opts *Options) *Replica {
	return &Replica{bucket: b, dir: dir, options: opts.withDefaults()}
}

// Fetch makes the directory hold the files of a manifest, and no other sealed files. It
// keeps an existing file if header and footer are correct. It does not verify the bytes
// between them again: they were verified before the file got its name, and the caller can
// verify them. An undamaged file of the same name with other content is ErrRefused: the
// directory belongs to another history of the queue. Fetch can be repeated after any
// failure.
func (r *Replica) Fetch(ctx context.Context, m *Manifest) error {
	fsys := r.options.FS
	if err := fsys.MkdirAll(r.dir); err != nil {
		return err
	}
	missing, err := r.missing(m)
	if err != nil {
		return err
	}
	// A reader that knows the head waits for the files.
	if head, err := queue.ReadHead(fsys, r.dir); err != nil || head != m.Head {
		if err := queue.WriteHead(fsys, r.dir, m.Head); err != nil {
			return err
		}
	}
	if err := r.fetchAll(ctx, missing); err != nil {
		return err
	}
	for _, dir := range []string{r.dir, filepath.Dir(r.dir)} {
		if err := fsys.SyncDir(dir); err != nil {
			return errors.Wrap(err, "publish: fetch")
		}
	}
	return r.removeOthers(m)
}

// missing returns the files of a manifest that the directory lacks.
func (r *Replica) missing(m *Manifest) ([]File, error) {
	var missing []File
	for _, f := range m.Files {
		path := filepath.Join(r.dir, f.Name)
		there, err := queue.DescribeSealed(r.options.FS, path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, queue.ErrCorrupt), errors.Is(err, queue.ErrIncomplete):
			missing = append(missing, f) // a damaged file is replaced
		case err == nil && there.Size == f.Size && Hex16(there.Footer) == f.Footer:
		case err == nil:
			return nil, refused("%s exists with other content than in manifest %d: give a new or empty directory", path, m.Number)
		default:
			return nil, err
		}
	}
	return missing, nil
}

// fetchAll fetches files concurrently.
func (r *Replica) fetchAll(ctx context.Context, files []File) error {
	var done progress
	var total int64
	for _, f := range files {
		total += f.Size
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentFiles)
	for _, f := range files {
		group.Go(func() error {
			if err := r.fetch(ctx, f); err != nil {
				return errors.Wrapf(err, "fetch %s", f.Name)
			}
			done.add(f.Size, total, r.options.Progress)
			return nil
		})
	}
	return group.Wait()
}

// fetch copies an object into a file of another name, verifies it, makes it durable and
// renames it. The name becomes durable when the caller syncs the directory.
func (r *Replica) fetch(ctx context.Context, f File) error {
	path := filepath.Join(r.dir, f.Name)
	part := path + partSuffix
	if err := r.options.FS.RemoveAll(part); err != nil {
		return err
	}
	file, err := r.options.FS.Create(part)
	if err != nil {
		return err
	}
	err = errors.CombineErrors(r.copyObject(ctx, f, file), file.Close())
	if err != nil {
		return errors.CombineErrors(err, r.options.FS.RemoveAll(part))
	}
	return r.options.FS.Rename(part, path)
}

func (r *Replica) copyObject(ctx context.Context, f File, file vfs.File) error {
	body, err := r.bucket.Get(ctx, f.object(), 0, f.Size)
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

// removeOthers removes sealed files that a manifest does not list, and the remains of
// fetches.
func (r *Replica) removeOthers(m *Manifest) error {
	listed := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		listed[f.Name] = true
	}
	names, err := r.options.FS.List(r.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		parsed, ok := queue.ParseFileName(strings.TrimSuffix(name, partSuffix))
		if !ok || !parsed.Sealed || listed[name] {
			continue
		}
		if err := r.options.FS.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Wrapf(err, "publish: remove a file that manifest %d does not list", m.Number)
		}
	}
	return nil
}

// Restore makes the directory of a queue from a manifest. The directory must be new or
// empty, or hold an earlier, unfinished Restore of the same manifest, which is continued.
func Restore(ctx context.Context, b bucket.Bucket, m *Manifest, dir string, opts *Options) error {
	r := NewReplica(b, dir, opts)
	if err := r.requireOnly(m); err != nil {
		return err
	}
	return r.Fetch(ctx, m)
}

// requireOnly returns an error if the directory holds files that a Restore of the manifest
// has not made.
func (r *Replica) requireOnly(m *Manifest) error {
	names, err := r.options.FS.List(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	allowed := map[string]bool{}
	for _, f := range m.Files {
		allowed[f.Name], allowed[f.Name+partSuffix] = true, true
	}
	for _, name := range names {
		if !allowed[name] && !strings.HasPrefix(name, queue.HeadName) {
			return refused("%s holds %s, which is not part of manifest %d: give a new or empty directory", r.dir, name, m.Number)
		}
	}
	return nil
}
