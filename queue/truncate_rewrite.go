package queue

import (
	"context"
	"crypto/sha256"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/errors"
)

// rewrite writes the rewrite that replaces the run.
func (t *truncation) rewrite(ctx context.Context) error {
	if err := t.checkCompacted(); err != nil {
		return err
	}
	header, dictionary, err := t.header()
	if err != nil {
		return err
	}
	cursor, err := t.lastCursor()
	if err != nil {
		return err
	}
	out := &rewriteFile{fs: t.options.FS, dir: t.dir}
	if t.options.DryRun {
		err = out.begin(header, dictionary)
	} else {
		out, err = createRewrite(t.options.FS, t.dir, header, dictionary)
	}
	if err != nil {
		return err
	}
	if err := t.copy(ctx, out); err != nil {
		return out.abandon(err)
	}
	rows := out.table.rows
	out.table = t.table(&out.header)
	out.table.rows, out.table.cursor = rows, cursor
	if err := out.finish(); err != nil {
		return err
	}
	t.report.Rewrite = out.path()
	if !t.options.DryRun {
		t.options.Logger.Info("entries taken back", "path", out.path(), "entries", t.report.Entries, "from", t.from.String())
	}
	return nil
}

// checkCompacted returns ErrCompacted if a kept rewrite has dropped entries because of
// later ones that may be truncated.
func (t *truncation) checkCompacted() error {
	if t.options.LoseCompacted {
		return nil
	}
	for _, run := range t.listing.rewrites {
		if run.first > t.from.Segment || run.first == t.from.Segment && t.kept == nil || t.listing.covering(run.first)[0] != run {
			continue
		}
		settled, err := settledOf(t.options.FS, run.path(t.dir), run.first)
		if err != nil {
			return err
		}
		if settled.Next.Compare(t.from) > 0 {
			return &markedError{mark: ErrCompacted, detail: run.path(t.dir) + " was written when the queue ended at " + settled.Next.String() +
				": the older versions of documents with a truncated newer version may be missing. " +
				"Allow the loss with --lose-compacted, and append these documents again afterwards"}
		}
	}
	return nil
}

// header returns the header of the rewrite, and its dictionary.
func (t *truncation) header() (header segmentHeader, dictionary []byte, err error) {
	switch {
	case t.kept != nil:
		header = t.kept.header
		dictionary, err = t.kept.dictionary()
	case t.previous != nil:
		header.queue, header.previous = t.previous.header.queue, t.previous.digest()
	case t.head.Highest > 0:
		header.queue = t.head.Queue
	default:
		var s *segmentFile
		if s, err = t.listing.openWhole(t.options.FS, t.dir, t.listing.places()[0]); err == nil {
			header.queue = s.header.queue
			s.close()
		}
	}
	header.segment, header.rewrites, header.created = t.run.first, t.run, t.options.Now().UnixMilli()
	return header, dictionary, err
}

// table returns the relocations of the rewrite with the header, without rows and cursor.
func (t *truncation) table(header *segmentHeader) relocations {
	end := Address{Segment: t.highest + 1}
	table := relocations{originals: make([]original, t.run.last-t.run.first+1)}
	if t.kept != nil && t.kept.footer != nil {
		table.originals[0].digest = t.kept.digestOf(t.run.first)
	}
	if t.kept != nil && t.kept.relocations != nil {
		copy(table.originals, t.kept.relocations.originals)
		table.settled = t.kept.relocations.settled
		table.lost = before(t.kept.relocations.lost, t.from)
		table.truncated = before(t.kept.relocations.truncated, t.from)
	}
	// The segment after the run must not continue the last truncated segment, which
	// readers may have read.
	var cut [lostAddressBytes]byte
	putAddress(cut[:], t.from)
	*table.last() = original{digest: sha256.Sum256(append(header.encode(), cut[:]...))}
	table.truncated = append(table.truncated, addressRange{t.from, end})
	return table
}

// before returns the part of the ranges before an address.
func before(ranges []addressRange, end Address) (left []addressRange) {
	for _, r := range ranges {
		if r.from.Compare(end) >= 0 {
			continue
		}
		if r.to.Compare(end) > 0 {
			r.to = end
		}
		left = append(left, r)
	}
	return left
}

// copy writes the kept entries. It verifies their documents.
func (t *truncation) copy(ctx context.Context, out *rewriteFile) error {
	var kept relocated
	data := getScratch()
	defer data.release()
	return t.eachKept(func(b *block, at Address, offset int64, keep int) error {
		documents := data.sized(int(b.dataBytes))
		if err := t.kept.readAt(documents, offset+b.dataOffset()); err != nil {
			return err
		}
		_, end := b.origin(at)
		kept.reset(at, end, b.chain(), b.appended)
		for i := range keep {
			e, place := b.entry(i), at
			place.Index = b.index(i)
			id, document := b.id(e), documents[e.start:e.end]
			if err := verifyDocument(place, &e, id, document); err != nil {
				return t.kept.damagedEntry(b, &e, offset, id, err)
			}
			kept.add(place.Index, id, document, e.rawAndFlags, e.crc, expirySeconds(b.expires(i)))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return out.write(&kept)
	})
}

// lastCursor returns the cursor of the last block that is kept as a whole, which may be
// in a segment before the run.
func (t *truncation) lastCursor() ([]byte, error) {
	if t.cursor != nil {
		return t.cursor, nil
	}
	for _, n := range slices.Backward(t.listing.places()) {
		if n >= t.run.first {
			continue
		}
		s, err := t.listing.openWhole(t.options.FS, t.dir, n)
		if err != nil {
			return nil, err
		}
		var table relocations
		if s.footer != nil {
			err = s.chainInto(&table)
		}
		s.close()
		if err != nil || s.footer == nil || s.footer.blocks > 0 || len(table.cursor) > 0 {
			return table.cursor, err
		}
	}
	return nil, nil
}

// finish writes the head and removes the files that the rewrite has replaced, including
// those left by a crash.
func (t *truncation) finish(run rewriteRun) error {
	names := t.listing.replacedBy(run)
	for _, n := range t.listing.numbers {
		if run.covers(n) && t.listing.open[n] {
			names = append(names, filepath.Base(segmentPath("", n, openSuffix)))
		}
	}
	slices.Sort(names)
	t.report.Removed = names
	if t.options.DryRun {
		return nil
	}
	head, err := headOf(t.options.FS, t.dir, t.options.Now)
	if err != nil {
		return err
	}
	if err := head.save(true); err != nil {
		return err
	}
	t.report.End = head.End
	for _, name := range names {
		if err := t.options.FS.Remove(filepath.Join(t.dir, name)); err != nil {
			return err
		}
		t.options.Logger.Info("truncated file removed", "path", filepath.Join(t.dir, name))
	}
	return errors.Wrap(t.options.FS.SyncDir(t.dir), "making the removals durable")
}
