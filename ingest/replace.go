package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/digests"
	"docstore/queue/shardset"
)

// replaceName is the beginning of the names of Replace's temporary files in the directory of the
// collection.
const replaceName = "REPLACE"

// ReplaceOptions configure Replace.
type ReplaceOptions struct {
	FS  vfs.FS // of the collection; the default is vfs.OS
	Dir string // of the collection
	// Parsing is that of each source: see Batch.Source. The default is one with the defaults.
	Parsing []Parsing
	// MaxDeletes is the maximum share of the documents that may be deleted, up to 1: an input that
	// was cut short must not delete the rest.
	MaxDeletes float64
	// DryRun only counts the documents, and changes no document of the collection.
	DryRun bool
	// Read is called after each batch with the totals so far; nil: it is not.
	Read   func(records, bytes int64)
	Logger *slog.Logger     // the default discards
	Now    func() time.Time // the default is time.Now
}

func (o *ReplaceOptions) complete() {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Parsing == nil {
		o.Parsing = []Parsing{{}}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Replaced counts the documents of Replace.
type Replaced struct {
	Equal, Changed, Added, Deleted int64
}

// Replace makes a collection equal to the documents of a source, which is its whole state. It
// appends the documents that the collection does not have, and a delete of each other one.
//
// A record that is, byte for byte, the document with its id is not parsed again.
//
// First it reads the source to its end, and keeps what is to be appended in a temporary file. On
// any error up to then, and if the context ends, the collection is unchanged. Then it appends in a
// transaction of each shard: readers see the new state at once, also after a crash, if segments are
// large enough. The cursors stay. After a crash or an error of the writer, Replace can be repeated;
// after an error, the writer is closed without a Flush.
//
// Errors match ErrInterrupted, ErrInvalid, ErrWriter or *TooManyDeletesError, or are those of the
// source and of the temporary files. Deletes, and ids that occur twice, are invalid.
func Replace(ctx context.Context, from Source, to *shardset.Writer, o ReplaceOptions) (Replaced, error) {
	o.complete()
	r := replacement{writer: to, options: o, now: o.Now()}
	err := r.open(ctx)
	if err == nil {
		err = r.run(ctx, from)
	}
	return r.counts, errors.Join(err, r.close())
}

// replacement is the state of Replace.
type replacement struct {
	writer  *shardset.Writer
	options ReplaceOptions
	now     time.Time // at which documents have expired or not
	table   *digests.Table
	seen    bits            // rows of the table that need no delete
	added   *digests.Unique // ids without a row, with their marks in kept
	kept    *keptRecords    // to be appended
	counts  Replaced
	records int64
	bytes   int64
}

func (r *replacement) open(ctx context.Context) (err error) {
	o := &r.options
	r.table, err = digests.Open(ctx, o.Dir, &digests.Options{FS: o.FS, Layout: r.writer.Layout(), Logger: o.Logger, Now: o.Now})
	if err != nil {
		if ctx.Err() != nil {
			err = ErrInterrupted
		}
		return err
	}
	r.seen = newBits(r.table.Rows())
	name := filepath.Join(o.Dir, replaceName)
	r.added = digests.NewUnique(o.FS, name)
	r.kept, err = keepRecords(o.FS, name+vfs.TmpSuffix)
	return err
}

func (r *replacement) close() (err error) {
	if r.kept != nil {
		err = errors.Join(err, r.kept.close())
	}
	if r.added != nil {
		err = errors.Join(err, r.added.Close())
	}
	if r.table != nil {
		err = errors.Join(err, r.table.Close())
	}
	return err
}

func (r *replacement) run(ctx context.Context, from Source) error {
	if err := r.read(ctx, from); err != nil {
		return err
	}
	if err := r.checkTwice(); err != nil {
		return err
	}
	if err := r.checkDeletes(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if r.options.DryRun {
		return nil
	}
	// From here on the collection changes: an interruption would leave a part of the state.
	ctx = context.WithoutCancel(ctx)
	if err := r.apply(ctx); err != nil {
		return &markedError{fmt.Errorf("appending to %s: %w; repeat it", r.options.Dir, err), ErrWriter}
	}
	if err := errors.Join(r.added.Close(), r.table.Update(ctx)); err != nil {
		r.options.Logger.Warn("the digests of the documents are not up to date; the next replacement reads the queue", "error", err)
	}
	return nil
}

// read reads the source.
func (r *replacement) read(ctx context.Context, from Source) error {
	p := newProducer(from, r.options.Parsing)
	p.parse = r.parse
	stop := p.start(ctx)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case b, more := <-p.filled:
			switch {
			case !more && !p.complete:
				return ErrInterrupted
			case !more:
				return nil
			case b.err != nil:
				return b.err
			}
			<-b.parsed // soon: parsers do not block
			if err := r.readBatch(b); err != nil {
				return err
			}
		}
	}
}

// known is what the table says about a record.
type known struct {
	row  int64 // -1: the collection does not have the id
	same bool  // it has this document, which has not expired
}

// parse parses the records of a batch and looks them up. Records that the collection has as they
// are, nearly all, are not parsed: to find them takes a fraction of the time. Parsers call it
// concurrently.
func (r *replacement) parse(p *Parser, b *parsedBatch) {
	b.known = make([]known, len(b.Records))
	search := make([]int, 0, len(b.Records))
	for i := range b.Records {
		record := &b.Records[i]
		if id := p.of[b.Source].simpleID(record); id != nil {
			record.ID = id
			search = append(search, i)
		}
	}
	r.find(b, search)
	for _, i := range search {
		if !b.known[i].same {
			b.Records[i].ID = nil
		}
	}
	p.Parse(b.Batch) // those without an id
	search = search[:0]
	for i := range b.Records {
		if record := &b.Records[i]; !b.known[i].same && record.Problem == nil && !record.Delete {
			search = append(search, i)
		}
	}
	r.find(b, search)
}

// find looks up records of a batch.
func (r *replacement) find(b *parsedBatch, records []int) {
	found := make([]digests.Found, len(records))
	err := r.table.FindAll(found, func(k int) []byte { return b.Records[records[k]].ID })
	for k, i := range records {
		record := &b.Records[i]
		if err != nil {
			record.Problem = err
			continue
		}
		row, digest := found[k].Row, digests.Of(record.Document, record.Expires)
		b.known[i] = known{row, row >= 0 && found[k].Digest == digest && !digest.Expired(r.now)}
	}
}

func (r *replacement) readBatch(b *parsedBatch) error {
	for i, known := range b.known {
		// Nearly all records: their memory is in the cache of another processor.
		if known.same && !r.seen.has(known.row) {
			r.seen.set(known.row)
			r.counts.Equal++
			continue
		}
		if err := r.readRecord(b, i); err != nil {
			return err
		}
	}
	r.records += int64(len(b.Records))
	r.bytes += b.Bytes
	if b.Release != nil {
		b.Release()
	}
	if r.options.Read != nil {
		r.options.Read(r.records, r.bytes)
	}
	return nil
}

func (r *replacement) readRecord(b *parsedBatch, i int) error {
	record, known := &b.Records[i], b.known[i]
	if problem := problemOf(record); problem != nil {
		return &markedError{fmt.Errorf("%s: %w", b.Place(i), problem), ErrInvalid}
	}
	if digests.Of(nil, record.Expires).Expired(r.now) {
		return nil // as if it was missing
	}
	switch verdictOn(known, known.row >= 0 && r.seen.has(known.row)) {
	case twice:
		return occursTwice(b.Place(i), record.ID)
	case equal:
		r.counts.Equal++
	case changed:
		r.counts.Changed++
		if _, err := r.kept.put(b.Place(i), record); err != nil {
			return err
		}
	case added:
		r.counts.Added++
		mark, err := r.kept.put(b.Place(i), record)
		if err != nil {
			return err
		}
		return r.added.Add(record.ID, mark)
	}
	r.seen.set(known.row)
	return nil
}

// problemOf returns why a record cannot be one of a state.
func problemOf(r *Record) error {
	switch {
	case r.Problem != nil:
		return r.Problem
	case r.Delete:
		return fmt.Errorf("a delete of %q; a whole state has documents only: leave its line out", r.ID)
	case len(r.ID) == 0 || len(r.ID) > queue.MaxIDBytes:
		return fmt.Errorf("the id has %d bytes; 1 to %d are allowed", len(r.ID), queue.MaxIDBytes)
	}
	return nil
}

func occursTwice(place string, id []byte) error {
	return &markedError{fmt.Errorf("%s: the id %q occurs twice; a whole state has one document of each id", place, id), ErrInvalid}
}

// checkTwice returns an error if an added id occurs twice.
func (r *replacement) checkTwice() error {
	mark, found, err := r.added.Twice()
	if err != nil || !found {
		return err
	}
	place, record, err := r.kept.at(mark)
	if err != nil {
		return err
	}
	return occursTwice(place, record.ID)
}

// checkDeletes counts the deletes and returns an error if there are too many. Expired documents
// need none.
func (r *replacement) checkDeletes() error {
	for row := range r.table.Rows() {
		if r.seen.has(row) {
			continue
		}
		digest, err := r.table.Digest(row)
		switch {
		case err != nil:
			return err
		case digest.Expired(r.now):
			r.seen.set(row)
		default:
			r.counts.Deleted++
		}
	}
	return r.counts.checkDeletes(r.options.MaxDeletes)
}

// apply appends the kept records and the deletes.
func (r *replacement) apply(ctx context.Context) error {
	if err := r.writer.Begin(); err != nil {
		return err
	}
	if err := r.kept.each(r.writer.Put); err != nil {
		return err
	}
	if r.counts.Deleted > 0 {
		err := r.table.IDs(ctx, func(id []byte, row int64) error {
			if r.seen.has(row) {
				return nil
			}
			r.seen.set(row)
			return r.writer.Put(queue.Record{ID: id, Delete: true})
		})
		if err != nil {
			return err
		}
	}
	return r.writer.Flush()
}
