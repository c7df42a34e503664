package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"docstore/internal/vfs"
)

// rewriter writes one rewrite, under a name that nobody reads, and gives it its
// own when it is durable.
type rewriter struct {
	*compaction
	run         plannedRun
	now         time.Time
	versions    map[idHash]*version
	settled     Address
	keepDeletes bool

	file   vfs.File
	header segmentHeader
	size   int64
	chain  uint32
	totals totals
	table  relocations
	out    []byte
}

func (w *rewriter) rewrite(ctx context.Context) error {
	run := rewriteRun{w.run.first(), w.run.last(), w.run.generation()}
	path := run.path(w.dir)
	file, err := w.options.FS.Create(path + underWaySuffix)
	if err != nil {
		return err
	}
	w.file = file
	err = w.write(ctx, run)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err != nil {
		return errors.Join(err, w.options.FS.Remove(path+underWaySuffix))
	}
	if err := w.options.FS.Rename(path+underWaySuffix, path); err != nil {
		return err
	}
	if err := w.options.FS.SyncDir(w.dir); err != nil {
		return err
	}
	w.report.Rewrites++
	w.report.BytesAfter += w.size
	for _, p := range w.run.parts {
		w.report.Replaced++
		w.report.BytesBefore += p.bytes
	}
	w.options.Logger.Info("segments rewritten", "path", path, "bytes", w.size)
	return nil
}

func (w *rewriter) write(ctx context.Context, run rewriteRun) error {
	if err := w.begin(run); err != nil {
		return err
	}
	if err := w.eachBlock(ctx, w.run, w.takeOver); err != nil {
		return err
	}
	w.table.offset, w.table.settled = uint32(w.size), w.settled
	footer := segmentFooter{
		relocations: uint32(w.size), chain: w.chain, queue: w.header.queue, segment: run.first, totals: w.totals,
	}
	if err := w.append(w.table.append(nil)); err != nil {
		return err
	}
	footer.offset = uint32(w.size)
	return w.append(footer.append(nil))
}

// begin writes header and dictionary, and takes over how the run is chained.
func (w *rewriter) begin(run rewriteRun) error {
	s, err := w.run.parts[0].open(w.options.FS, w.dir)
	if err != nil {
		return err
	}
	defer s.file.Close()
	dictionary, err := s.dictionary()
	if err != nil {
		return err
	}
	w.header = s.header
	w.header.segment, w.header.rewrites, w.header.created = run.first, run, w.now.UnixMilli()
	last, err := w.run.parts[len(w.run.parts)-1].open(w.options.FS, w.dir)
	if err != nil {
		return err
	}
	defer last.file.Close()
	w.table.last = last.footer.digest()
	if last.relocations != nil {
		w.table.last = last.relocations.last
	}
	beginning := append(w.header.append(nil), dictionary...)
	w.chain = w.header.crc
	return w.append(beginning)
}

func (w *rewriter) append(p []byte) error {
	if w.size+int64(len(p)) > MaxSegmentBytes {
		return errors.New("rewrite is larger than a segment may be")
	}
	_, err := w.file.Write(p)
	w.size += int64(len(p))
	return err
}

// keeping is what becomes of an entry.
type keeping uint8

const (
	keepNot    keeping = iota
	keepWhole          // as it is
	keepDelete         // an expired document, as a delete
)

func (w *rewriter) judge(at Address, e *entry, id []byte, expires time.Time) keeping {
	v := w.versions[hashID(id)]
	expired := !expires.IsZero() && !w.now.Before(expires)
	switch {
	case v.newest != at:
		return keepNot
	case !e.deleted() && !expired:
		return keepWhole
	case !w.keepDeletes && (v.first == 0 || v.first >= w.run.first()):
		return keepNot
	}
	return keepDelete
}

// takeOver writes what is to be kept of a block.
func (w *rewriter) takeOver(s *segmentFile, b *block, at Address, offset int64) error {
	data := getScratch()
	defer data.release()
	documents := data.sized(int(b.dataBytes))
	if err := s.readAt(documents, offset+b.dataOffset()); err != nil {
		return err
	}
	var entries, expiries, indexes, ids, stored []byte
	h := blockHeader{relocated: true, expiries: b.expiries, previous: w.chain, appended: b.appended, cursorBytes: b.cursorBytes}
	for i := range b.count {
		e, id, place := b.entry(i), b.id(b.entry(i)), at
		place.Index = b.index(i)
		keeping := w.judge(place, &e, id, b.expires(i))
		if keeping == keepNot {
			continue
		}
		document := documents[e.start:e.end]
		if err := verifyDocument(place, &e, id, document); err != nil {
			c := s.corruption(offset+b.dataOffset()+int64(e.start), err)
			c.ID = string(id)
			return c
		}
		expires := uint32(0)
		if keeping == keepDelete {
			document, e.rawAndFlags = nil, flagDeleted
			e.crc = documentCRC(place, e.rawAndFlags, id, nil)
		} else if b.expiries {
			expires = expirySeconds(b.expires(i))
		}
		ids, stored = append(ids, id...), append(stored, document...)
		entries = little.AppendUint32(entries, uint32(len(stored)))
		entries = little.AppendUint32(entries, uint32(len(ids)))
		entries = little.AppendUint32(entries, e.rawAndFlags)
		entries = little.AppendUint32(entries, e.crc)
		expiries = little.AppendUint32(expiries, expires)
		indexes = little.AppendUint16(indexes, place.Index)
		h.count++
	}
	if h.count == 0 {
		return nil
	}
	if !b.expiries {
		expiries = nil
	}
	_, end := b.origin(Address{Segment: at.Segment, Block: uint32(offset)})
	var origin []byte
	origin = little.AppendUint32(origin, uint32(at.Segment))
	origin = little.AppendUint32(origin, at.Block)
	origin = little.AppendUint32(origin, end)
	h.dataBytes = uint32(len(stored))
	table := slices.Concat(make([]byte, blockHeaderBytes), entries, expiries, origin, indexes, ids, b.cursor())
	h.tableBytes = uint32(len(table) - blockHeaderBytes)
	h.put(table)
	sealFrame(table)
	return w.emit(at, &block{bytes: table}, stored)
}

// emit writes a block and notes where it stands.
func (w *rewriter) emit(at Address, b *block, stored []byte) error {
	if err := b.parse(); err != nil {
		return err
	}
	w.table.add(at, uint32(w.size))
	w.totals.add(w.size, b)
	w.chain = b.crc
	w.out = append(append(w.out[:0], b.bytes...), stored...)
	return w.append(w.out)
}
