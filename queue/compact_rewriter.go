package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/codec"
)

// rewriter copies the entries that a rewrite keeps of a run.
type rewriter struct {
	*compaction
	run         plannedRun
	now         time.Time
	versions    map[idHash]*version
	settled     Address
	newest      Address // entry of the queue
	keepDeletes bool

	file  *rewriteFile
	kept  relocated
	coder *transcoder // nil: documents keep their encoding
}

func (w *rewriter) rewrite(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	before := w.done
	if err := w.eachBlock(ctx, w.run, w.copyBlock); err != nil {
		return w.file.abandon(err)
	}
	w.file.table.settled = w.settled
	if err := w.file.finish(); err != nil {
		return err
	}
	w.report.Rewrites++
	w.report.BytesAfter += w.file.size
	w.report.Replaced += len(w.run.parts)
	w.report.BytesBefore += w.run.bytes()
	w.pass(before + w.run.bytes() - w.done) // bytes outside of blocks
	w.options.Logger.Info("segments rewritten", "path", w.file.path(), "bytes", w.file.size)
	return nil
}

// begin copies the chain, the cursor and the lost ranges of the run.
func (w *rewriter) begin(ctx context.Context) error {
	var header segmentHeader
	var dictionary []byte
	var table relocations
	erases := false
	for i, p := range w.run.parts {
		s, err := p.open(w.options.FS, w.dir)
		if err != nil {
			return err
		}
		if i == 0 {
			header = s.header
			dictionary, err = s.dictionary()
		}
		if err == nil {
			err = s.chainInto(&table)
		}
		erases = erases || p.erase || s.header.erases
		s.close()
		if err != nil {
			return err
		}
	}
	var err error
	if header.rewrites, err = newRun(w.run.first(), w.run.last(), w.run.highestGeneration()); err != nil {
		return err
	}
	header.segment, header.created, header.erases = w.run.first(), w.now.UnixMilli(), erases
	if w.run.parts[0].tainted {
		header.sampled = rewriteRun{}
		if dictionary, err = w.train(ctx, header.codec); len(dictionary) > 0 {
			header.sampled = header.rewrites
		}
	}
	if err != nil {
		return err
	}
	if w.file, err = createRewrite(w.options.FS, w.dir, header, dictionary); err == nil {
		w.file.table = table
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

func (w *rewriter) decide(at Address, e *entry, id []byte, expires time.Time) decision {
	v := w.versions[hashID(id)]
	expired := !expires.IsZero() && !w.now.Before(expires)
	retained := v.newest != at && slices.Contains(v.retained, at)
	switch {
	case v.newest != at && !retained:
		return keepNot
	case !e.deleted() && !expired:
		return keepWhole
	case retained: // an earlier version may be retained, too
		return keepDelete
	case at == w.newest: // marks the end of the queue for readers
		return keepDelete
	case !w.keepDeletes && (v.first == 0 || v.first >= w.run.first()):
		return keepNot
	}
	return keepDelete
}

// copyBlock writes the kept entries of a block.
func (w *rewriter) copyBlock(s *segmentFile, b *block, at Address, offset int64) error {
	_, end := b.origin(Address{Segment: at.Segment, Block: uint32(offset)})
	w.kept.reset(at, end, b.chain(), b.appended)
	err := w.eachKept(s, b, at, offset, func(place Address, e *entry, id, document []byte, expires time.Time) error {
		if e.deleted() {
			w.kept.addBare(place.Index, id, flagDeleted, 0)
			return nil
		}
		flags, crc := e.rawAndFlags, e.crc
		if w.coder != nil && !e.lost() {
			var err error
			if document, flags, err = w.coder.recode(s, e, document); err != nil {
				return s.damagedEntry(b, e, offset, id, err)
			}
			crc = documentCRC(place, flags, id, document)
		}
		w.kept.add(place.Index, id, document, flags, crc, expirySeconds(expires))
		return nil
	})
	if err != nil {
		return err
	}
	w.pass(b.size())
	return w.file.write(&w.kept)
}

// eachKept calls fn for each kept entry of a block, with its verified document. An entry
// that is kept as a delete is passed as one.
func (w *rewriter) eachKept(s *segmentFile, b *block, at Address, offset int64,
	fn func(place Address, e *entry, id, document []byte, expires time.Time) error) error {
	data := getScratch()
	defer data.release()
	documents := data.sized(int(b.dataBytes))
	if err := s.readAt(documents, offset+b.dataOffset()); err != nil {
		return err
	}
	for i := range b.count {
		e, id, place := b.entry(i), b.id(b.entry(i)), at
		place.Index = b.index(i)
		document := documents[e.start:e.end]
		d := w.decide(place, &e, id, b.expires(i))
		if d == keepNot {
			continue
		}
		if err := verifyDocument(place, &e, id, document); err != nil {
			return s.damagedEntry(b, &e, offset, id, err)
		}
		if d == keepDelete {
			e, document = entry{rawAndFlags: flagDeleted}, nil
		}
		if err := fn(place, &e, id, document, b.expires(i)); err != nil {
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
		if err := c.eachBlock(ctx, run, func(_ *segmentFile, b *block, _ Address, _ int64) error {
			for i := range b.count {
				versions[hashID(b.id(b.entry(i)))] = new(version)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	var settled Position
	var newest Address
	err := c.reader.Scan(ctx, Position{}, func(e Entry) error {
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
	newest Address
	first  SegmentID // the first segment with a document of it; 0: none
	// retained are earlier entries that were the newest of the id in a retained state.
	retained []Address
}

func hashID(id []byte) idHash {
	sum := sha256.Sum256(id)
	return idHash(sum[:16])
}

// eachBlock calls fn for each block of the files of a run, with its original address and
// its offset in the file.
func (c *compaction) eachBlock(ctx context.Context, run plannedRun, fn func(s *segmentFile, b *block, at Address, offset int64) error) error {
	var b block
	for _, p := range run.parts {
		s, err := p.open(c.options.FS, c.dir)
		if err != nil {
			return err
		}
		w := s.newWalk()
		for err == nil {
			offset := w.next
			var kind frameType
			if kind, err = w.step(s, &b); err != nil || kind == frameFooter {
				break
			}
			if kind == frameBlock {
				at, _ := b.origin(Address{Segment: s.number, Block: uint32(offset)})
				err = cmp.Or(ctx.Err(), fn(s, &b, at, offset))
			}
		}
		s.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens a sealed file.
func (p *part) open(fsys vfs.FS, dir string) (*segmentFile, error) {
	name := segmentPath(dir, p.first, sealedSuffix)
	if p.generation > 0 {
		name = p.path(dir)
	}
	s, err := openSegmentFile(fsys, name, p.first)
	if err == nil && s.footer == nil {
		s.close()
		err = errIncomplete
	}
	return s, err
}

// transcoder encodes documents again, without the dictionary of their file.
type transcoder struct {
	codec   codec.Codec
	encoder codec.Encoder
	from    *segmentFile // the file of decoder
	decoder codec.Decoder
	raw     []byte // buffer for an uncompressed document
	stored  []byte // buffer for the encoded document
}

// decode returns the uncompressed document, valid until the next call.
func (t *transcoder) decode(s *segmentFile, e *entry, document []byte) ([]byte, error) {
	if e.storedRaw() {
		return document, nil
	}
	if t.from != s {
		content, err := s.dictionary()
		if err != nil {
			return nil, err
		}
		if t.decoder, err = t.codec.NewDecoder(content); err != nil {
			return nil, err
		}
		t.from = s
	}
	var err error
	t.raw, err = t.decoder.Decode(t.raw[:0], document, e.rawBytes())
	return t.raw, err
}

// recode returns the document in its new encoding, valid until the next call, with its
// length and flags.
func (t *transcoder) recode(s *segmentFile, e *entry, document []byte) (stored []byte, rawAndFlags uint32, err error) {
	raw, err := t.decode(s, e, document)
	if err != nil {
		return nil, 0, err
	}
	rawAndFlags = uint32(len(raw))
	var storedRaw bool
	if t.stored, storedRaw = appendEncoded(t.encoder, t.stored[:0], raw); storedRaw {
		rawAndFlags |= flagStoredRaw
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
	size := w.options.dictionaryBytes
	documents, bytes := newSample(sampleShare*size), 0
	err = w.eachBlock(ctx, w.run, func(s *segmentFile, b *block, at Address, offset int64) error {
		return w.eachKept(s, b, at, offset, func(place Address, e *entry, id, document []byte, _ time.Time) error {
			if e.deleted() || e.lost() {
				return nil
			}
			raw, err := w.coder.decode(s, e, document)
			if err != nil {
				return s.damagedEntry(b, e, offset, id, err)
			}
			documents.add(place.Segment, raw)
			bytes += len(raw)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	w.coder.from = nil // the files are reopened
	var content []byte
	if bytes >= dictionaryShare*size {
		better, err := trainBetter(c, nil, documents.documents, size)
		if err != nil {
			w.options.Logger.Warn("rewriting without a dictionary", "reason", err)
		}
		if better != nil {
			content = better.bytes
		}
	}
	w.coder.encoder, err = c.NewEncoder(content)
	return content, err
}
