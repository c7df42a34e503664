package publish

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
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
	// Reserve is called before a Replica fetches so many files and bytes. Its error ends the Fetch.
	Reserve func(files int, bytes int64) error
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
		options.Reserve = func(int, int64) error { return nil }
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
	source  *directory
	queue   string // in the Record
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
	p := &Publisher{bucket: b, owner: rand.Text(), options: opts.withDefaults()}
	var err error
	if p.source, err = openDirectory(p.options.FS, dir); err != nil {
		return nil, err
	}
	if err := p.open(ctx); err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Publisher) open(ctx context.Context) error {
	var err error
	if p.log, err = OpenLog(ctx, p.bucket, p.options.Now); err != nil {
		return err
	}
	record, err := p.log.Load(ctx)
	if err != nil {
		return err
	}
	// The files are listed after the record was read: another Publisher of the same queue may commit
	// files that are sealed in between, and files of before would look like an older copy.
	files, err := p.source.sealed()
	if err != nil {
		return err
	}
	if files.count() == 0 {
		return refused("%s has no sealed segment: append documents, or run docstore-updater seal", p.source.path)
	}
	if p.queue, err = p.source.id(ctx, p.bucket, record, files); err != nil {
		return err
	}
	if err := p.checkNewBucket(ctx, record); err != nil {
		return err
	}
	if err := p.checkQueue(ctx, record, files); err != nil {
		return err
	}
	if err := p.log.Claim(ctx); err != nil {
		return err
	}
	record, err = p.log.Update(ctx, func(r Record) (Record, error) {
		return r.takeOver(p.queue, p.owner, p.options.NewGeneration, p.options.Stream)
	})
	if err != nil {
		return err
	}
	p.epoch = record.Epoch
	return p.endEarlier(ctx, record)
}

// checkNewBucket proves that a bucket without commits can hold a collection.
func (p *Publisher) checkNewBucket(ctx context.Context, record Record) error {
	if record.Epoch > 0 {
		return nil
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

// checkQueue returns an error unless the queue has everything that was published and announced: the
// publisher of a newer copy must not be fenced by that of an older one.
func (p *Publisher) checkQueue(ctx context.Context, record Record, files sealedFiles) error {
	base := record.base(p.queue)
	if base.Number == 0 {
		return nil
	}
	m, err := ReadManifest(ctx, p.bucket, base)
	if err != nil {
		return err
	}
	if err := p.source.continues(m, files); err != nil || !record.Increments || base != record.Head {
		return err
	}
	p.epoch = record.Epoch
	return errors.CombineErrors(p.openChain(ctx, base), p.closeChain())
}

// Close releases the queue and the claim on the collection.
func (p *Publisher) Close() error {
	err := p.closeChain()
	if p.log != nil {
		p.log.Release()
	}
	return errors.CombineErrors(err, p.source.close())
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
	files, err := p.source.sealed()
	if err != nil {
		return Published{}, err
	}
	if files.count() == 0 {
		return Published{}, refused("%s has no sealed segment", p.source.path)
	}
	if i := files.unsettled(); i >= 0 {
		return Published{}, unsealed("compact has rewritten segments of %s with regard to entries of a segment that is not sealed: run docstore-updater seal, then publish again", p.source.queues[i].path)
	}
	var result Published
	for {
		record, err := p.log.Load(ctx)
		if err != nil {
			return Published{}, err
		}
		if record.Owner != p.owner {
			return Published{}, errors.Wrapf(ErrFenced, "epoch %d", record.Epoch)
		}
		base := record.base(p.queue)
		parent := new(Manifest)
		if base.Number > 0 {
			if parent, err = ReadManifest(ctx, p.bucket, base); err != nil {
				return Published{}, err
			}
			if err := p.source.continues(parent, files); err != nil {
				return Published{}, err
			}
		}
		parents, err := p.source.of(parent)
		if err != nil {
			return Published{}, err
		}
		ends, err := p.leastEnds(ctx, record, base, parents)
		if err != nil {
			return Published{}, err
		}
		chunk := nextChunk(parents, ends, files)
		partial := chunk.count() < files.count()
		published, err := p.publish(ctx, record.Head, base, parent, chunk, ends, partial)
		if err != nil {
			return Published{}, err
		}
		published.New, published.Uploaded = published.New || result.New, published.Uploaded+result.Uploaded
		if result = published; !partial {
			return result, nil
		}
	}
}

// leastEnds returns the last segment of each queue that the next manifest includes at least: that
// of its parent, or the one whose entries increments of the parent have announced. A server that
// starts with a manifest that lacks some of them would not find documents that were announced.
func (p *Publisher) leastEnds(ctx context.Context, record Record, base Ref, parents []*Manifest) ([]queue.SegmentID, error) {
	ends := make([]queue.SegmentID, len(parents))
	for i, m := range parents {
		ends[i] = m.Heads[0].Sealed
	}
	if !record.Increments || base != record.Head || base.Number == 0 {
		return ends, nil
	}
	newest, err := NewestIncrement(ctx, p.bucket, base)
	if err != nil || newest == 0 {
		return ends, err
	}
	last, err := bucketIncrements{p.bucket, len(parents)}.ReadHeader(ctx, base, newest)
	if err != nil {
		return nil, err
	}
	for i, part := range last.Parts {
		if part.To > 0 {
			ends[i] = part.Segment
		}
	}
	return ends, nil
}

// publish commits a manifest of files, which continues base. Its manifest is parent. ends are those
// of leastEnds.
func (p *Publisher) publish(ctx context.Context, head, base Ref, parent *Manifest, files sealedFiles, ends []queue.SegmentID, partial bool) (Published, error) {
	m, uploaded, err := p.upload(ctx, parent, files)
	if err != nil {
		return Published{}, err
	}
	if base == head && slices.Equal(m.Files, parent.Files) {
		return Published{Ref: head, Manifest: parent}, nil
	}
	for i, end := range m.ends() {
		if end < ends[i] {
			return Published{}, unsealed("increments of manifest %d announced entries of segment %d in %s, which is not sealed: run docstore-updater seal, then publish again", base.Number, ends[i], p.source.queues[i].path)
		}
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

// upload makes a manifest without numbers, and puts the files that parent does not list
// into the bucket.
func (p *Publisher) upload(ctx context.Context, parent *Manifest, files sealedFiles) (*Manifest, int64, error) {
	m := &Manifest{Time: p.options.Now().UTC().Round(0), Layout: p.source.layout}
	known := parent.byName()
	for i, q := range p.source.queues {
		for _, f := range files[i] {
			file := describe(f)
			file.Name, file.Epoch = q.prefix+f.Name, p.epoch
			if old, ok := known[file.Name]; ok && old.is(f) {
				file = old
			}
			m.Files = append(m.Files, file)
		}
	}
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	if err := p.setHeads(m, parent, files); err != nil {
		return nil, 0, err
	}
	total, err := p.uploadFiles(ctx, m, known)
	return m, total, err
}

// setHeads sets the heads of a manifest. A shard that has not changed keeps its head.
func (p *Publisher) setHeads(m, parent *Manifest, files sealedFiles) error {
	m.Heads = make([]queue.Head, len(files))
	for i, q := range p.source.queues {
		if parent.Number > 0 && slices.Equal(m.filesOf(i), parent.filesOf(i)) {
			m.Heads[i] = parent.Heads[i]
			continue
		}
		if len(files[i]) > 0 {
			var err error
			if m.Heads[i], err = q.reader.SealedHead(files[i]); err != nil {
				return err
			}
		}
		m.Heads[i].Time = m.Time // also of an empty shard: it makes a server of it ready
	}
	return nil
}

// uploadFiles puts the files of a manifest that are not known into the bucket, and returns
// their size.
func (p *Publisher) uploadFiles(ctx context.Context, m *Manifest, known map[string]File) (total int64, err error) {
	var fresh []int
	for i, f := range m.Files {
		if known[f.Name] != f {
			fresh = append(fresh, i)
			total += f.Size
		}
	}
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
	return total, group.Wait()
}

// uploadFile computes the digest of a file and puts it into the bucket.
func (p *Publisher) uploadFile(ctx context.Context, f *File) error {
	file, err := p.options.FS.Open(filepath.Join(p.source.path, filepath.FromSlash(f.Name)))
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
