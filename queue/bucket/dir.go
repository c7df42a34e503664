package bucket

import (
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"docstore/internal/vfs"

	"github.com/cockroachdb/errors"
)

const (
	// tempDir holds the files of unfinished Puts. No object's name begins with a dot.
	tempDir = ".tmp"
	// staleAfter is the age at which a temporary file can only be the remains of a
	// process that was killed.
	staleAfter = 24 * time.Hour
	// copyBytes is how much of an object is read at a time.
	copyBytes = 256 << 10
)

// Dir is a bucket in a directory, which may be shared by several machines over NFS. An
// object is the file of its name.
//
// Put writes a temporary file, syncs it, links it to its name and syncs the directory.
// link(2) fails if the name exists, on NFS as well, so one of several writers succeeds. A
// crash leaves at most a temporary file, which OpenDir removes after a day.
type Dir struct {
	fs   vfs.FS
	root string
}

var _ Bucket = (*Dir)(nil)

// OpenDir opens the bucket in a directory and creates the directory if its parent exists.
func OpenDir(fsys vfs.FS, root string) (*Dir, error) {
	d := &Dir{fs: fsys, root: root}
	if _, err := fsys.Stat(filepath.Dir(root)); err != nil {
		return nil, errors.Wrapf(ErrNoBucket, "open %s: create its parent directory or mount it (%v)", root, err)
	}
	if err := d.makeDir(d.path(tempDir)); err != nil {
		return nil, err
	}
	return d, d.removeStale()
}

func (d *Dir) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

// makeDir makes a directory at or below the root durably.
func (d *Dir) makeDir(dir string) error {
	var missing []string
	for dir != filepath.Dir(d.root) {
		if _, err := d.fs.Stat(dir); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return errors.Wrapf(err, "bucket: make %s", dir)
		}
		missing = append(missing, dir)
		dir = filepath.Dir(dir)
	}
	for _, m := range slices.Backward(missing) {
		if err := d.fs.MkdirAll(m); err != nil {
			return errors.Wrapf(err, "bucket: make %s", m)
		}
		if err := d.fs.SyncDir(filepath.Dir(m)); err != nil {
			return errors.Wrapf(err, "bucket: sync %s", filepath.Dir(m))
		}
	}
	return nil
}

// removeStale removes the temporary files of processes that were killed.
func (d *Dir) removeStale() error {
	names, err := d.fs.List(d.path(tempDir))
	if err != nil {
		return errors.Wrap(err, "bucket: list temporary files")
	}
	for _, name := range names {
		file := filepath.Join(d.path(tempDir), name)
		info, err := d.fs.Stat(file)
		if err == nil && time.Since(info.ModTime) > staleAfter {
			err = d.fs.Remove(file)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Wrap(err, "bucket: remove a stale temporary file")
		}
	}
	return nil
}

// Put implements Bucket.
func (d *Dir) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if err := checkPut(name, size); err != nil {
		return err
	}
	target := d.path(name)
	// An object that exists costs no copy.
	if _, err := d.fs.Stat(target); err == nil {
		return d.exists(name, target)
	}
	temp := filepath.Join(d.path(tempDir), rand.Text())
	defer d.fs.Remove(temp) //nolint:errcheck // it is removed when it is stale
	if err := d.writeTemp(ctx, temp, body, size); err != nil {
		return errors.Wrapf(err, "bucket: put %s", name)
	}
	dir := filepath.Dir(target)
	if err := d.makeDir(dir); err != nil {
		return err
	}
	switch err := d.fs.Link(temp, target); {
	case errors.Is(err, fs.ErrExist):
		return d.exists(name, target)
	case err != nil:
		return errors.Wrapf(err, "bucket: put %s", name)
	}
	return errors.Wrapf(d.fs.SyncDir(dir), "bucket: put %s", name)
}

// exists returns ErrExist once the object's name is durable: its writer may not have
// synced the directory yet, and the caller relies on the object from now on.
func (d *Dir) exists(name, target string) error {
	if err := d.fs.SyncDir(filepath.Dir(target)); err != nil {
		return errors.Wrapf(err, "bucket: put %s", name)
	}
	return errors.Wrapf(ErrExist, "put %s", name)
}

func (d *Dir) writeTemp(ctx context.Context, temp string, body io.ReaderAt, size int64) error {
	file, err := d.fs.Create(temp)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, contextReader{ctx, io.NewSectionReader(body, 0, size)}, make([]byte, min(size+1, copyBytes)))
	if err == nil {
		var info vfs.Info
		if info, err = file.Stat(); err == nil && info.Size != size {
			err = errors.Newf("the body has %d bytes, want %d", info.Size, size)
		}
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.CombineErrors(err, file.Close())
}

// contextReader ends with the context's error.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// checkPut checks the arguments of a Put.
func checkPut(name string, size int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	if size < 0 || size > MaxObjectBytes {
		return errors.Newf("bucket: put %s: an object has 0 to %d bytes, not %d", name, int64(MaxObjectBytes), size)
	}
	return nil
}

// checkGet checks the arguments of a Get.
func checkGet(name string, offset int64) error {
	if offset < 0 {
		return errors.Newf("bucket: get %s: negative offset %d", name, offset)
	}
	return checkName(name)
}

// Get implements Bucket.
func (d *Dir) Get(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := checkGet(name, offset); err != nil {
		return nil, err
	}
	file, err := d.fs.Open(d.path(name))
	if err != nil {
		return nil, notExist(err, "get", name)
	}
	info, err := file.Stat()
	if err != nil || info.Dir {
		_ = file.Close()
		if err == nil {
			err = fs.ErrNotExist
		}
		return nil, notExist(err, "get", name)
	}
	rest := max(info.Size-offset, 0)
	if length < 0 || length > rest {
		length = rest
	}
	return &sizedReader{io.NewSectionReader(file, offset, length), file, length}, nil
}

// sizedReader is a body of known size.
type sizedReader struct {
	io.Reader
	io.Closer
	size int64 // bytes
}

// notExist marks an error of the file system that means that there is no object.
func notExist(err error, operation, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Wrapf(ErrNotExist, "%s %s", operation, name)
	}
	return errors.Wrapf(err, "bucket: %s %s", operation, name)
}

// Head implements Bucket.
func (d *Dir) Head(_ context.Context, name string) (Info, error) {
	if err := checkName(name); err != nil {
		return Info{}, err
	}
	info, err := d.fs.Stat(d.path(name))
	if err == nil && info.Dir {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Info{}, notExist(err, "head", name)
	}
	return Info{Name: name, Size: info.Size}, nil
}

// List implements Bucket.
func (d *Dir) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		// The files below the deepest directory that the prefix names.
		dir, _ := path.Split(prefix)
		var found []Info
		if err := d.walk(ctx, strings.TrimSuffix(dir, "/"), prefix, after, &found); err != nil {
			yield(Info{}, errors.Wrapf(err, "bucket: list %s", prefix))
			return
		}
		slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
		for _, info := range found {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// walk appends the objects of a directory that List wants to found.
func (d *Dir) walk(ctx context.Context, dir, prefix, after string, found *[]Info) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	names, err := d.fs.List(d.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, base := range names {
		name := path.Join(dir, base)
		if base[0] == '.' || !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name+"/") {
			continue
		}
		info, err := d.fs.Stat(d.path(name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted meanwhile
		case err != nil:
			return err
		case info.Dir:
			if err := d.walk(ctx, name, prefix, after, found); err != nil {
				return err
			}
		case name > after:
			*found = append(*found, Info{Name: name, Size: info.Size})
		}
	}
	return nil
}

// Delete implements Bucket.
func (d *Dir) Delete(_ context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := d.fs.Remove(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.fs.SyncDir(filepath.Dir(d.path(name)))
	}
	return errors.Wrapf(err, "bucket: delete %s", name)
}
