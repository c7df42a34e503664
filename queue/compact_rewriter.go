package queue

import (
	"context"
	"slices"
	"time"
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

// chainInto adds to the table of a rewrite the state of a file that it replaces: its
// segments, the lost and truncated ranges, and its cursor if it has one.
func (s *segmentFile) chainInto(table *relocations) error {
	if s.relocations != nil {
		table.originals = append(table.originals, s.relocations.originals...)
		table.lost = append(table.lost, s.relocations.lost...)
		table.truncated = append(table.truncated, s.relocations.truncated...)
		if len(s.relocations.cursor) > 0 {
			table.cursor = s.relocations.cursor
		}
		return nil
	}
	o := original{digest: s.footer.digest()}
	if s.footer.lastBlock > 0 {
		var b block
		if _, err := s.frame(&b, int64(s.footer.lastBlock)); err != nil {
			return err
		}
		o.end, o.chain = s.footer.lastBlock+uint32(b.size()), b.crc
		table.cursor = slices.Clone(b.cursor())
	}
	table.originals = append(table.originals, o)
	return nil
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

// damagedEntry is the error for a damaged document of the block at offset.
func (s *segmentFile) damagedEntry(b *block, e *entry, offset int64, id []byte, reason error) error {
	return s.damagedDocument(offset+b.dataOffset()+int64(e.start), id, reason)
}
