package maintain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"
)

// rewriter copies the entries that a rewrite keeps of a run.
type rewriter struct {
	*compaction
	run         plannedRun
	now         time.Time
	versions    map[idHash]*version
	settled     queue.Address
	newest      queue.Address // entry of the queue
	keepDeletes bool

	file  *segment.Rewrite
	kept  segment.RelocatedBlock
	coder *transcoder // nil: documents keep their encoding
}

func (w *rewriter) rewrite(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	before := w.done
	if err := w.eachBlock(ctx, w.run, w.copyBlock); err != nil {
		return w.file.Abandon(err)
	}
	w.file.Table.Settled = w.settled
	if err := w.file.Finish(); err != nil {
		return err
	}
	w.report.Rewrites++
	w.report.BytesAfter += w.file.Size
	w.report.Replaced += len(w.run.parts)
	w.report.BytesBefore += w.run.bytes()
	w.pass(before + w.run.bytes() - w.done) // bytes outside of blocks
	w.options.Logger.Info("segments rewritten", "path", w.file.Path(), "bytes", w.file.Size)
	return nil
}

// begin copies the chain, the cursor and the lost ranges of the run.
func (w *rewriter) begin(ctx context.Context) error {
	var header segment.Header
	var dictionary []byte
	var table segment.Relocations
	erases := false
	for i, p := range w.run.parts {
		s, err := p.open(w.options.FS, w.dir)
		if err != nil {
			return err
		}
		if i == 0 {
			header = s.Header
			dictionary, err = s.Dictionary()
		}
		if err == nil {
			err = s.ChainInto(&table)
		}
		erases = erases || p.erase || s.Header.Erases
		s.Close()
		if err != nil {
			return err
		}
	}
	var err error
	if header.Rewrites, err = segment.NewRun(w.run.first(), w.run.last(), w.run.highestGeneration()); err != nil {
		return err
	}
	header.Segment, header.Created, header.Erases = w.run.first(), w.now.UnixMilli(), erases
	if w.run.parts[0].tainted {
		header.Sampled = segment.Run{}
		if dictionary, err = w.train(ctx, header.Codec); len(dictionary) > 0 {
			header.Sampled = header.Rewrites
		}
	}
	if err != nil {
		return err
	}
	if w.file, err = segment.CreateRewrite(w.options.FS, w.dir, header, dictionary); err == nil {
		w.file.Table = table
	}
	return err
}

// decision is the outcome for an entry of a rewritten file.
type decision uint8

const (
	keepNot decision = iota
	keepWhole
	keepDelete // without a document, as a delete
)

func (w *rewriter) decide(at queue.Address, e *segment.Entry, id []byte, expires time.Time) decision {
	v := w.versions[hashID(id)]
	expired := !expires.IsZero() && !w.now.Before(expires)
	retained := v.newest != at && slices.Contains(v.retained, at)
	switch {
	case v.newest != at && !retained:
		return keepNot
	case !e.Deleted() && !expired:
		return keepWhole
	case retained: // an earlier version may be retained, too
		return keepDelete
	case at == w.newest: // marks the end of the queue for readers
		return keepDelete
	case !w.keepDeletes && len(v.retained) == 0 && (v.first == 0 || v.first >= w.run.first()):
		return keepNot // no file has an earlier version after this rewrite
	}
	return keepDelete
}

// copyBlock writes the kept entries of a block.
func (w *rewriter) copyBlock(s *segment.File, b *segment.Block, at queue.Address, offset int64) error {
	_, end := b.Origin(queue.Address{Segment: at.Segment, Block: uint32(offset)})
	w.kept.Reset(at, end, b.Chain(), b.Appended, b.Cursor())
	err := w.eachKept(s, b, at, offset, func(place queue.Address, e *segment.Entry, id, document []byte, expires time.Time) error {
		if e.Deleted() {
			w.kept.AddBare(place.Index, id, segment.FlagDeleted, 0)
			return nil
		}
		flags, crc := e.RawAndFlags, e.CRC
		if w.coder != nil && !e.Lost() {
			var err error
			if document, flags, err = w.coder.recode(s, e, document); err != nil {
				return s.DamagedEntry(b, e, offset, id, err)
			}
			crc = segment.DocumentCRC(place, flags, id, document)
		}
		w.kept.Add(place.Index, id, document, flags, crc, segment.ExpirySeconds(expires))
		return nil
	})
	if err != nil {
		return err
	}
	w.pass(b.Size())
	return w.file.Write(&w.kept)
}

// eachKept calls fn for each kept entry of a block, with its verified document. An entry
// that is kept as a delete is passed as one.
func (w *rewriter) eachKept(s *segment.File, b *segment.Block, at queue.Address, offset int64,
	fn func(place queue.Address, e *segment.Entry, id, document []byte, expires time.Time) error) error {
	data := segment.GetScratch()
	defer data.Release()
	documents := data.Sized(int(b.DataBytes))
	if err := s.ReadAt(documents, offset+b.DataOffset()); err != nil {
		return err
	}
	for i := range b.Count {
		e, id, place := b.Entry(i), b.ID(b.Entry(i)), at
		place.Index = b.Index(i)
		document := documents[e.Start:e.End]
		d := w.decide(place, &e, id, b.Expires(i))
		if d == keepNot {
			continue
		}
		if err := segment.VerifyDocument(place, &e, id, document); err != nil {
			return s.DamagedEntry(b, &e, offset, id, err)
		}
		if d == keepDelete {
			e, document = segment.Entry{RawAndFlags: segment.FlagDeleted}, nil
		}
		if err := fn(place, &e, id, document, b.Expires(i)); err != nil {
			return err
		}
	}
	return nil
}

// rewriteAll determines the entries to keep of the runs, in one pass over the tables of
// the queue, and writes the rewrites.
func (c *compaction) rewriteAll(ctx context.Context, runs []plannedRun, now time.Time) error {
	versions := map[idHash]*version{}
	for _, run := range runs {
		if err := c.eachBlock(ctx, run, func(_ *segment.File, b *segment.Block, _ queue.Address, _ int64) error {
			for i := range b.Count {
				versions[hashID(b.ID(b.Entry(i)))] = new(version)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	var settled queue.Position
	var newest queue.Address
	err := c.reader.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
		settled, newest = e.Next, e.Address
		if v := versions[hashID(e.ID)]; v != nil {
			if !e.Deleted && v.first == 0 {
				v.first = e.Address.Segment
			}
			if !v.newest.IsZero() && len(retainedBetween(c.options.RetainedEnds, v.newest.Segment, e.Address.Segment)) > 0 {
				v.retained = append(v.retained, v.newest)
			}
			v.newest = e.Address
		}
		return nil
	})
	if err != nil {
		return err
	}
	deletesStay, err := c.deletesStay()
	if err != nil {
		return err
	}
	for _, run := range runs {
		w := rewriter{
			compaction: c, run: run, now: now, versions: versions, settled: settled.Next, newest: newest,
			keepDeletes: deletesStay > 0 && deletesStay <= run.last(),
		}
		if err := w.rewrite(ctx); err != nil {
			return err
		}
	}
	return nil
}

// version is the state of an id in the queue.
type version struct {
	newest queue.Address
	first  queue.SegmentID // the first segment with a document of it; 0: none
	// retained are earlier entries that were the newest of the id in a retained state.
	retained []queue.Address
}

func hashID(id []byte) idHash {
	sum := sha256.Sum256(id)
	return idHash(sum[:16])
}

// eachBlock calls fn for each block of the files of a run, with its original address and
// its offset in the file.
func (c *compaction) eachBlock(ctx context.Context, run plannedRun, fn func(s *segment.File, b *segment.Block, at queue.Address, offset int64) error) error {
	var b segment.Block
	for _, p := range run.parts {
		s, err := p.open(c.options.FS, c.dir)
		if err != nil {
			return err
		}
		w := s.NewWalk()
		for err == nil {
			offset := w.Next
			var kind segment.FrameType
			if kind, err = w.Step(s, &b); err != nil || kind == segment.FrameFooter {
				break
			}
			if kind == segment.FrameBlock {
				at, _ := b.Origin(queue.Address{Segment: s.Number, Block: uint32(offset)})
				err = cmp.Or(ctx.Err(), fn(s, &b, at, offset))
			}
		}
		s.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens a sealed file.
func (p *part) open(fsys vfs.FS, dir string) (*segment.File, error) {
	name := segment.Path(dir, p.First, segment.SealedSuffix)
	if p.Generation > 0 {
		name = p.Path(dir)
	}
	s, err := segment.Open(fsys, name, p.First)
	if err == nil && s.Footer == nil {
		s.Close()
		err = segment.ErrPartial
	}
	return s, err
}

// transcoder encodes documents again, without the dictionary of their file.
type transcoder struct {
	codec   codec.Codec
	encoder codec.Encoder
	from    *segment.File // the file of decoder
	decoder codec.Decoder
	raw     []byte // buffer for an uncompressed document
	stored  []byte // buffer for the encoded document
}

// decode returns the uncompressed document, valid until the next call.
func (t *transcoder) decode(s *segment.File, e *segment.Entry, document []byte) ([]byte, error) {
	if e.StoredRaw() {
		return document, nil
	}
	if t.from != s {
		content, err := s.Dictionary()
		if err != nil {
			return nil, err
		}
		if t.decoder, err = t.codec.NewDecoder(content); err != nil {
			return nil, err
		}
		t.from = s
	}
	var err error
	t.raw, err = t.decoder.Decode(t.raw[:0], document, e.RawBytes())
	return t.raw, err
}

// recode returns the document in its new encoding, valid until the next call, with its
// length and flags.
func (t *transcoder) recode(s *segment.File, e *segment.Entry, document []byte) (stored []byte, rawAndFlags uint32, err error) {
	raw, err := t.decode(s, e, document)
	if err != nil {
		return nil, 0, err
	}
	rawAndFlags = uint32(len(raw))
	var storedRaw bool
	if t.stored, storedRaw = segment.AppendEncoded(t.encoder, t.stored[:0], raw); storedRaw {
		rawAndFlags |= segment.FlagStoredRaw
	}
	return t.stored, rawAndFlags, nil
}

// train trains the dictionary of a rewrite from the documents that it keeps, so that it
// contains nothing of any other. It returns none if there are too few documents.
func (w *rewriter) train(ctx context.Context, id codec.ID) ([]byte, error) {
	c, err := codec.ByID(id)
	if err != nil {
		return nil, err
	}
	w.coder = &transcoder{codec: c}
	size := w.options.DictionaryBytes
	documents, bytes := dictionary.NewSample(dictionary.SampleShare*size), 0
	err = w.eachBlock(ctx, w.run, func(s *segment.File, b *segment.Block, at queue.Address, offset int64) error {
		return w.eachKept(s, b, at, offset, func(place queue.Address, e *segment.Entry, id, document []byte, _ time.Time) error {
			if e.Deleted() || e.Lost() {
				return nil
			}
			raw, err := w.coder.decode(s, e, document)
			if err != nil {
				return s.DamagedEntry(b, e, offset, id, err)
			}
			documents.Add(place.Segment, raw)
			bytes += len(raw)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	w.coder.from = nil // the files are reopened
	var content []byte
	if bytes >= dictionary.Share*size {
		better, err := dictionary.Train(c, nil, documents.Documents, size)
		if err != nil {
			w.options.Logger.Warn("rewriting without a dictionary", "reason", err)
		}
		if better != nil {
			content = better.Bytes
		}
	}
	w.coder.encoder, err = c.NewEncoder(content)
	return content, err
}
