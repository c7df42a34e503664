package publish

import (
	"context"
	"crypto/sha256"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/shard"

	"github.com/cockroachdb/errors"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// partSuffix ends the names of files that are being fetched. Readers of a queue ignore them.
const partSuffix = ".part"

// IsPart reports whether a file of this name is being fetched.
func IsPart(name string) bool { return strings.HasSuffix(name, partSuffix) }

// Replica makes a directory hold the files of a manifest, in the directories of the shards.
// Readers may use the directory concurrently: a file gets its name after it is complete and
// verified, and files that a rewrite replaces are removed after the rewrite has its name. A
// Replica is not safe for concurrent use.
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
	queues, err := r.open(m)
	if err != nil {
		return err
	}
	var missing []transfer
	for _, q := range queues {
		files, err := q.missing()
		if err != nil {
			return err
		}
		missing = append(missing, files...)
	}
	for _, q := range queues {
		if err := q.writeHead(); err != nil {
			return err
		}
	}
	if err := r.fetchAll(ctx, missing); err != nil {
		return err
	}
	for _, q := range queues {
		if err := q.complete(); err != nil {
			return err
		}
	}
	return nil
}

// replicaQueue is the directory of a shard of a manifest.
type replicaQueue struct {
	*Replica
	dir      string
	manifest *Manifest // of this queue
}

// transfer is a file to be fetched.
type transfer struct {
	to   *replicaQueue
	file File
}

// open makes the directories of the queues of a manifest.
func (r *Replica) open(m *Manifest) ([]*replicaQueue, error) {
	if err := r.checkLayout(m); err != nil {
		return nil, err
	}
	if err := shard.Write(r.options.FS, r.dir, m.Layout); err != nil {
		return nil, err
	}
	queues := make([]*replicaQueue, m.Layout.Shards)
	for i := range queues {
		queues[i] = &replicaQueue{r, m.Layout.Dir(r.dir, i), m.queueAt(i)}
		if err := r.options.FS.MkdirAll(queues[i].dir); err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// checkLayout returns an error if the directory has another layout than a manifest.
func (r *Replica) checkLayout(m *Manifest) error {
	layout, err := shard.Read(r.options.FS, r.dir)
	switch {
	case err != nil || layout.Shards == 1:
		return err
	case layout != m.Layout:
		return refused("%s has %d shards with the seed %d, and manifest %d has another layout: give a new or empty directory", r.dir, layout.Shards, layout.Seed, m.Number)
	}
	return nil
}

// writeHead writes the head first: a reader that knows it waits for the files.
func (q *replicaQueue) writeHead() error {
	fsys, head := q.options.FS, q.manifest.Heads[0]
	if there, err := queue.ReadHead(fsys, q.dir); err == nil && there == head {
		return nil
	}
	return queue.WriteHead(fsys, q.dir, head)
}

// complete makes the names of the files durable and removes other ones.
func (q *replicaQueue) complete() error {
	for _, dir := range []string{q.dir, filepath.Dir(q.dir)} {
		if err := q.options.FS.SyncDir(dir); err != nil {
			return errors.Wrap(err, "publish: fetch")
		}
	}
	return errors.CombineErrors(q.removeOthers(), q.removeOpen())
}

// missing returns the files of the manifest that the directory lacks.
func (q *replicaQueue) missing() ([]transfer, error) {
	var missing []transfer
	for _, f := range q.manifest.Files {
		path := filepath.Join(q.dir, f.Name)
		there, err := queue.DescribeSealed(q.options.FS, path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, queue.ErrCorrupt), errors.Is(err, queue.ErrIncomplete):
			missing = append(missing, transfer{q, f}) // a damaged file is replaced
		case err == nil && there.Size == f.Size && Hex16(there.Footer) == f.Footer:
		case err == nil:
			return nil, refused("%s exists with other content than in manifest %d: give a new or empty directory", path, q.manifest.Number)
		default:
			return nil, err
		}
	}
	return missing, nil
}

// fetchAll fetches files concurrently.
func (r *Replica) fetchAll(ctx context.Context, files []transfer) error {
	if r.options.Source != nil {
		// Servers that begin together fetch other files first, and then from each other.
		rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	}
	done := progress{report: r.options.Progress}
	for _, t := range files {
		done.total += t.file.Size
	}
	if done.total == 0 {
		return nil
	}
	if err := r.options.Reserve(len(files), done.total); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.options.Concurrency)
	for _, t := range files {
		group.Go(func() error { return errors.Wrapf(t.to.fetch(ctx, t.file, &done), "fetch %s", t.file.Name) })
	}
	return group.Wait()
}

// fetch makes a file of the directory. Its name becomes durable when the caller syncs the
// directory.
func (q *replicaQueue) fetch(ctx context.Context, f File, done *progress) error {
	if adopted, err := q.adopt(ctx, f, done); adopted || err != nil {
		return err
	}
	path := filepath.Join(q.dir, f.Name)
	part := path + partSuffix
	store := func(body io.Reader) error { return q.store(ctx, f, part, body, done) }
	fromSource := q.options.Source != nil && q.options.Source.Fetch(ctx, f, store) == nil
	if !fromSource {
		if err := q.fromBucket(ctx, f, store); err != nil {
			return err
		}
	}
	if err := q.options.FS.Rename(part, path); err != nil {
		return err
	}
	q.options.Fetched(f, fromSource)
	return nil
}

func (r *Replica) fromBucket(ctx context.Context, f File, store func(io.Reader) error) error {
	body, err := r.bucket.Get(ctx, f.object(), 0, f.Size)
	if err != nil {
		return err
	}
	defer body.Close()
	return errors.Wrapf(store(body), "object %s", f.object())
}

// store writes a copy of a file to a path, verifies it and makes it durable. On an error it
// removes the path.
func (r *Replica) store(ctx context.Context, f File, path string, body io.Reader, done *progress) (err error) {
	if err := r.options.FS.RemoveAll(path); err != nil {
		return err
	}
	file, err := r.options.FS.Create(path)
	if err != nil {
		return err
	}
	hash, counted := sha256.New(), &throttled{ctx: ctx, from: body, rate: r.options.Rate, done: done}
	n, err := io.Copy(io.MultiWriter(hash, file), counted)
	if digest := Digest(hash.Sum(nil)); err == nil && (n != f.Size || digest != f.Digest) {
		err = corrupt("%s has %d bytes with the digest %s, want %d bytes with %s: the copy is damaged", f.Name, n, digest, f.Size, f.Digest)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.CombineErrors(err, file.Close()); err != nil {
		done.add(-counted.n)
		return errors.CombineErrors(err, r.options.FS.RemoveAll(path))
	}
	return nil
}

// throttled is a reader that waits for a limiter and reports its progress.
type throttled struct {
	ctx  context.Context
	from io.Reader
	rate *rate.Limiter // nil: no limit
	done *progress
	n    int64
}

func (t *throttled) Read(p []byte) (int, error) {
	if t.rate != nil {
		p = p[:min(len(p), t.rate.Burst())]
	}
	n, err := t.from.Read(p)
	t.n += int64(n)
	t.done.add(int64(n))
	if t.rate != nil && n > 0 {
		if limited := t.rate.WaitN(t.ctx, n); limited != nil {
			return n, limited
		}
	}
	return n, err
}

// removeOthers removes sealed files that the manifest does not list, and the remains of
// fetches.
func (q *replicaQueue) removeOthers() error {
	listed := make(map[string]bool, len(q.manifest.Files))
	for _, f := range q.manifest.Files {
		listed[f.Name] = true
	}
	names, err := q.options.FS.List(q.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		parsed, ok := queue.ParseFileName(strings.TrimSuffix(name, partSuffix))
		if !ok || !parsed.Sealed || listed[name] {
			continue
		}
		if err := q.options.FS.Remove(filepath.Join(q.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Wrapf(err, "publish: remove a file that manifest %d does not list", q.manifest.Number)
		}
	}
	return nil
}

// LinkFiles makes hard links in a directory to the files of a manifest that another directory
// has.
func LinkFiles(fsys vfs.FS, m *Manifest, from, to string) error {
	for _, file := range m.Files {
		source := filepath.Join(from, file.Name)
		there, err := queue.DescribeSealed(fsys, source)
		if err != nil || there.Size != file.Size || Hex16(there.Footer) != file.Footer {
			continue // it is missing or damaged, or another file of this name
		}
		err = fsys.Link(source, filepath.Join(to, file.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
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
	if err := r.checkLayout(m); err != nil {
		return err
	}
	allowed := map[string]bool{shard.LayoutName: true}
	for i := range m.Layout.Shards {
		q := replicaQueue{r, m.Layout.Dir(r.dir, i), m.queueAt(i)}
		allowed[filepath.Base(q.dir)] = true
		if err := q.requireOnly(); err != nil {
			return err
		}
	}
	if m.Layout.Shards == 1 {
		return nil // its directory is this one
	}
	return r.requireNames(r.dir, m, func(name string) bool { return allowed[name] })
}

// requireOnly is Replica.requireOnly for one queue.
func (q *replicaQueue) requireOnly() error {
	m := q.manifest
	allowed := map[string]bool{queue.OpenSegmentName(m.Heads[0].Sealed + 1): true} // of RestoreIncrements
	for _, f := range m.Files {
		allowed[f.Name], allowed[f.Name+partSuffix] = true, true
	}
	return q.requireNames(q.dir, m, func(name string) bool { return allowed[name] || strings.HasPrefix(name, queue.HeadName) })
}

// requireNames returns an error if a directory has a file with another name.
func (r *Replica) requireNames(dir string, m *Manifest, allowed func(name string) bool) error {
	names, err := r.options.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if !allowed(name) {
			return refused("%s holds %s, which is not part of manifest %d: give a new or empty directory", dir, name, m.Number)
		}
	}
	return nil
}
