package publish

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// DefaultConcurrency is the number of files that are transferred at the same time. The
// bucket limits its requests itself.
const DefaultConcurrency = 8

// chunkBytes is how much is uploaded before a manifest is committed. Tests change it.
var chunkBytes int64 = 1 << 30

// Options configure a Publisher and a Restore. Nil and zero values are the defaults.
type Options struct {
	// FS is the file system of the queue. The default is vfs.OS.
	FS vfs.FS
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// Stream makes a Publisher announce the manifests that it commits, and increments
	// between them, while the head is announced and nothing else is pinned.
	Stream bool
	// Progress is called with the bytes transferred so far and in total.
	Progress func(done, total int64)
	// NewGeneration allows a Publisher to publish another queue than the one that the bucket
	// holds. Its manifests replace the whole collection when one is announced.
	NewGeneration bool

	// Source, if not nil, provides files to a Replica instead of the bucket.
	Source Source
	// Rate limits the bytes per second that a Replica fetches. The default is no limit.
	Rate *rate.Limiter
	// Concurrency is the number of files that a Replica fetches at the same time. The
	// default is DefaultConcurrency.
	Concurrency int
	// Reserve is called before a Replica fetches so many bytes. Its error ends the Fetch.
	Reserve func(bytes int64) error
	// Fetched is called with each file that a Replica has fetched and verified. fromSource:
	// Source provided it, and not the bucket. Several goroutines call it.
	Fetched func(f File, fromSource bool)
}

// A Source has copies of files that manifests list, for example on other servers. A Replica
// asks it before the bucket, and verifies the copies.
type Source interface {
	// Fetch passes a copy of a file to store, and another copy if store returns an error
	// that matches ErrCorrupt. It returns nil after store has returned nil. After an error
	// the Replica gets the file from the bucket. Several goroutines call Fetch.
	Fetch(ctx context.Context, f File, store func(io.Reader) error) error
}

func (o *Options) withDefaults() Options {
	var options Options
	if o != nil {
		options = *o
	}
	if options.FS == nil {
		options.FS = vfs.OS
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Concurrency <= 0 {
		options.Concurrency = DefaultConcurrency
	}
	if options.Reserve == nil {
		options.Reserve = func(int64) error { return nil }
	}
	if options.Fetched == nil {
		options.Fetched = func(File, bool) {}
	}
	if options.Progress == nil {
		options.Progress = func(int64, int64) {}
	}
	return options
}

// Publisher uploads the sealed files of a queue and commits manifests. A bucket has one
// Publisher at a time: opening another one takes the bucket over, and the previous one
// then fails with ErrFenced. A Publisher is not safe for concurrent use.
type Publisher struct {
	bucket  bucket.Bucket
	log     *Log
	reader  *queue.Reader
	dir     string
	queue   string
	owner   string
	epoch   uint64
	options Options
	chain   *chain // of increments; nil: not open
}

// Published is the result of Publish.
type Published struct {
	Ref      Ref
	Manifest *Manifest
	New      bool // false: the queue has not changed since the newest manifest
	// Announced: the Publisher has announced the manifest, too.
	Announced bool
	Uploaded  int64 // bytes
}

// OpenPublisher takes over the collection in a bucket for the queue in dir. If the bucket
// has no collection yet, OpenPublisher tests the store with bucket.Check first.
func OpenPublisher(ctx context.Context, b bucket.Bucket, dir string, opts *Options) (*Publisher, error) {
	p := &Publisher{bucket: b, dir: dir, owner: rand.Text(), options: opts.withDefaults()}
	var err error
	if p.reader, err = queue.OpenReader(dir, &queue.ReaderOptions{FS: p.options.FS}); err != nil {
		return nil, err
	}
	if err := p.open(ctx); err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Publisher) open(ctx context.Context) error {
	files, err := p.reader.Sealed()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return refused("%s has no sealed segment: append documents, or run docstore-updater seal", p.dir)
	}
	if p.queue, err = queueID(p.options.FS, p.dir, files); err != nil {
		return err
	}
	if p.log, err = OpenLog(ctx, p.bucket, p.options.Now); err != nil {
		return err
	}
	if err := p.checkNewBucket(ctx); err != nil {
		return err
	}
	if err := p.log.Claim(ctx); err != nil {
		return err
	}
	record, err := p.log.Update(ctx, func(r Record) (Record, error) {
		return r.takeOver(p.queue, p.owner, p.options.NewGeneration, p.options.Stream)
	})
	if err != nil {
		return err
	}
	p.epoch = record.Epoch
	return p.endEarlier(ctx, record)
}

// queueID returns the id of the queue that a file belongs to, as a Record has it.
func queueID(fsys vfs.FS, dir string, files []queue.SealedFile) (string, error) {
	id, err := queue.IDOf(fsys, filepath.Join(dir, files[0].Name))
	return hex.EncodeToString(id[:]), err
}

// checkNewBucket proves that a bucket without commits can hold a collection.
func (p *Publisher) checkNewBucket(ctx context.Context) error {
	record, err := p.log.Load(ctx)
	if err != nil || record.Epoch > 0 {
		return err
	}
	findings, err := bucket.Check(ctx, p.bucket)
	if err != nil {
		return err
	}
	if err := bucket.Deviations(findings); err != nil {
		return refused("the store cannot hold a collection: %v", err)
	}
	return nil
}

// Close releases the queue and the claim on the collection.
func (p *Publisher) Close() error {
	err := p.closeChain()
	if p.log != nil {
		p.log.Release()
	}
	return errors.CombineErrors(err, p.reader.Close())
}

// Publish uploads the sealed files that the bucket lacks and commits a manifest of all
// sealed files. While it has uploaded more than chunkBytes it commits a manifest of the
// first files in between, so that an interrupted Publish is continued. If the sealed files
// are those of the head, it commits nothing.
func (p *Publisher) Publish(ctx context.Context) (published Published, err error) {
	// Compact may replace files that are to be read: begin again with those that exist.
	for range publishAttempts {
		if published, err = p.publishSealed(ctx); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return published, err
}

// publishAttempts bounds the attempts of Publish.
const publishAttempts = 5

// publishSealed is Publish for the files that are sealed now.
func (p *Publisher) publishSealed(ctx context.Context) (Published, error) {
	files, err := p.reader.Sealed()
	if err != nil {
		return Published{}, err
	}
	if len(files) == 0 {
		return Published{}, refused("%s has no sealed segment", p.dir)
	}
	if !settled(files) {
		return Published{}, refused("compact has rewritten segments of %s with regard to entries of a segment that is not sealed: run docstore-updater seal, then publish again", p.dir)
	}
	var result Published
	for {
		record, err := p.log.Load(ctx)
		if err != nil {
			return Published{}, err
		}
		base := record.base(p.queue)
		parent := new(Manifest)
		if base.Number > 0 {
			if parent, err = ReadManifest(ctx, p.bucket, base); err != nil {
				return Published{}, err
			}
			if err := continues(p.reader, p.dir, parent, files); err != nil {
				return Published{}, err
			}
		}
		chunk := nextChunk(parent, files)
		published, err := p.publish(ctx, record.Head, base, parent, chunk, len(chunk) < len(files))
		if err != nil {
			return Published{}, err
		}
		published.New, published.Uploaded = published.New || result.New, published.Uploaded+result.Uploaded
		if result = published; len(chunk) == len(files) {
			return result, nil
		}
	}
}

// nextChunk returns the first files: at least those that parent covers, and then as many as
// are needed for chunkBytes that parent lacks.
func nextChunk(parent *Manifest, files []queue.SealedFile) []queue.SealedFile {
	known := parent.byName()
	var missing int64
	for i, f := range files {
		if old, ok := known[f.Name]; !ok || !old.is(f) {
			missing += f.Size
		}
		if missing >= chunkBytes && f.Last >= parent.Head.Sealed && settled(files[:i+1]) {
			return files[:i+1]
		}
	}
	return files
}

// publish commits a manifest of files, which continues base. Its manifest is parent.
func (p *Publisher) publish(ctx context.Context, head, base Ref, parent *Manifest, files []queue.SealedFile, partial bool) (Published, error) {
	m, uploaded, err := p.upload(ctx, parent, files)
	if err != nil {
		return Published{}, err
	}
	if base == head && slices.Equal(m.Files, parent.Files) {
		return Published{Ref: head, Manifest: parent}, nil
	}
	m.Number, m.Previous = head.Number+1, head
	if base != head {
		m.Parent = &base
	}
	data, ref, err := m.encode()
	if err != nil {
		return Published{}, err
	}
	if err := putManifest(ctx, p.bucket, data, ref); err != nil {
		return Published{}, err
	}
	record, err := p.log.Update(ctx, func(r Record) (Record, error) {
		return r.commitNext(p.owner, p.queue, m, ref.Digest, partial, p.options.Stream)
	})
	return Published{Ref: ref, Manifest: m, New: true, Announced: err == nil && record.Announced == ref, Uploaded: uploaded}, err
}

// settled reports whether rewrites have left out entries only because of later ones in these
// files: without those, documents would be missing.
func settled(files []queue.SealedFile) bool {
	last := files[len(files)-1].Last
	return !slices.ContainsFunc(files, func(f queue.SealedFile) bool { return f.Settled.Segment > last })
}

// continues returns an error unless a queue holds everything that a manifest lists: an older
// copy and another history are refused.
func continues(r *queue.Reader, dir string, m *Manifest, files []queue.SealedFile) error {
	last := queue.SegmentID(0)
	if len(files) > 0 {
		last = files[len(files)-1].Last
	}
	if m.Head.Sealed > last {
		return refused("the queue in %s ends with segment %d, and manifest %d reaches to segment %d: it is an older copy; run docstore-updater restore into a new directory", dir, last, m.Number, m.Head.Sealed)
	}
	footer, err := r.FooterOf(m.Head.Sealed)
	if err != nil {
		return err
	}
	if want := queue.FooterDigest(m.Head.Digest[:]); footer != (queue.FooterDigest{}) && footer != want {
		return refused("segment %d of the queue in %s has the digest %x, and manifest %d has %x: the queue was restored from an older copy and written again, or truncated; complete an interrupted docstore-updater discard, run restore into a new directory, or publish to another prefix", m.Head.Sealed, dir, footer, m.Number, want)
	}
	return nil
}

// upload makes a manifest without numbers, and puts the files that parent does not list
// into the bucket.
func (p *Publisher) upload(ctx context.Context, parent *Manifest, files []queue.SealedFile) (*Manifest, int64, error) {
	known := parent.byName()
	m := &Manifest{Time: p.options.Now().UTC().Round(0), Files: make([]File, len(files))}
	var total int64
	var fresh []int
	for i, f := range files {
		m.Files[i] = describe(f)
		m.Files[i].Epoch = p.epoch
		if old, ok := known[f.Name]; ok && old.is(f) {
			m.Files[i] = old
			continue
		}
		fresh = append(fresh, i)
		total += f.Size
	}
	var err error
	if m.Head, err = p.reader.SealedHead(files); err != nil {
		return nil, 0, err
	}
	m.Head.Time = m.Time

	done := progress{total: total, report: p.options.Progress}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(DefaultConcurrency)
	for _, i := range fresh {
		group.Go(func() error {
			if err := p.uploadFile(ctx, &m.Files[i]); err != nil {
				return errors.Wrapf(err, "publish %s", m.Files[i].Name)
			}
			done.add(m.Files[i].Size)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return m, total, nil
}

// uploadFile computes the digest of a file and puts it into the bucket.
func (p *Publisher) uploadFile(ctx context.Context, f *File) error {
	file, err := p.options.FS.Open(filepath.Join(p.dir, f.Name))
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	if n, err := io.Copy(hash, contextReader{ctx, io.NewSectionReader(file, 0, f.Size)}); err != nil || n != f.Size {
		return errors.CombineErrors(err, errors.Newf("publish: read %d bytes, want %d", n, f.Size))
	}
	hash.Sum(f.Digest[:0])
	err = p.bucket.Put(ctx, f.object(), file, f.Size)
	if errors.Is(err, bucket.ErrExist) {
		return nil // an earlier attempt of this publisher has put it
	}
	return err
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

// progress adds up the bytes that concurrent transfers report.
type progress struct {
	total  int64
	report func(done, total int64)

	mu   sync.Mutex
	done int64
}

func (p *progress) add(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += bytes
	p.report(p.done, p.total)
}
