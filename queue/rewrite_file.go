package queue

import (
	"errors"
	"fmt"
	"slices"

	"docstore/internal/vfs"
)

// rewriteFile is a rewrite that is being written, under a temporary name. It gets its
// final name when it is durable.
type rewriteFile struct {
	fs     vfs.FS
	dir    string
	file   vfs.File // nil: bytes are counted and not written
	header segmentHeader
	size   int64
	chain  uint32
	totals totals
	table  relocations // without its offset
	out    []byte
}

// temporarySuffix ends the name of an incomplete rewrite.
const temporarySuffix = ".compact"

// createRewrite creates the file of the rewrite header.rewrites.
func createRewrite(fsys vfs.FS, dir string, header segmentHeader, dictionary []byte) (*rewriteFile, error) {
	file, err := fsys.Create(header.rewrites.path(dir) + temporarySuffix)
	if err != nil {
		return nil, err
	}
	w := &rewriteFile{fs: fsys, dir: dir, file: file}
	if err := w.begin(header, dictionary); err != nil {
		return nil, w.abandon(err)
	}
	return w, nil
}

// begin writes header and dictionary.
func (w *rewriteFile) begin(header segmentHeader, dictionary []byte) error {
	header.setDictionary(dictionary)
	beginning := append(header.encode(), dictionary...)
	w.header, w.chain = header, header.crc
	return w.append(beginning)
}

func (w *rewriteFile) path() string { return w.header.rewrites.path(w.dir) }

func (w *rewriteFile) append(p []byte) error {
	if w.size+int64(len(p)) > MaxSegmentBytes {
		return fmt.Errorf("the rewrite of segments %d to %d exceeds the maximum of %d bytes", w.header.rewrites.first, w.header.rewrites.last, int64(MaxSegmentBytes))
	}
	if w.file != nil {
		if _, err := w.file.Write(p); err != nil {
			return err
		}
	}
	w.size += int64(len(p))
	return nil
}

// relocated is the kept part of a block.
type relocated struct {
	at       Address // of the block's first entry
	end      uint32  // offset after the block in its original segment
	chain    uint32  // checksum of the original block; 0: unknown
	appended int64
	count    int

	entries, expiries, indexes, ids, stored []byte
	expire                                  bool // any entry expires
}

// reset begins the next block.
func (r *relocated) reset(at Address, end, chain uint32, appended int64) {
	*r = relocated{
		at: at, end: end, chain: chain, appended: appended,
		entries: r.entries[:0], expiries: r.expiries[:0], indexes: r.indexes[:0], ids: r.ids[:0], stored: r.stored[:0],
	}
}

// add appends the entry with an index in the original block.
func (r *relocated) add(index uint16, id, stored []byte, rawAndFlags, crc, expiry uint32) {
	r.ids, r.stored = append(r.ids, id...), append(r.stored, stored...)
	r.entries = little.AppendUint32(r.entries, uint32(len(r.stored)))
	r.entries = little.AppendUint32(r.entries, uint32(len(r.ids)))
	r.entries = little.AppendUint32(r.entries, rawAndFlags)
	r.entries = little.AppendUint32(r.entries, crc)
	r.expiries = little.AppendUint32(r.expiries, expiry)
	r.expire = r.expire || expiry != 0
	r.indexes = little.AppendUint16(r.indexes, index)
	r.count++
}

// addBare appends an entry without its document. flags state the reason.
func (r *relocated) addBare(index uint16, id []byte, flags, expiry uint32) {
	at := r.at
	at.Index = index
	r.add(index, id, nil, flags, documentCRC(at, flags, id, nil), expiry)
}

// write writes the block, unless it has no entries.
func (w *rewriteFile) write(r *relocated) error {
	if r.count == 0 {
		return nil
	}
	h := blockHeader{
		relocated: true, expiries: r.expire, count: r.count, dataBytes: uint32(len(r.stored)),
		previous: w.chain, appended: r.appended,
	}
	expiries := r.expiries
	if !r.expire {
		expiries = nil
	}
	var origin [originBytes]byte
	little.PutUint32(origin[0:], uint32(r.at.Segment))
	little.PutUint32(origin[4:], r.at.Block)
	little.PutUint32(origin[8:], r.end)
	little.PutUint32(origin[12:], r.chain)
	table := slices.Concat(make([]byte, blockHeaderBytes), r.entries, expiries, origin[:], r.indexes, r.ids)
	h.tableBytes = uint32(len(table) - blockHeaderBytes)
	h.put(table)
	sealFrame(table)
	b := block{bytes: table}
	if err := b.parse(); err != nil {
		return err
	}
	w.table.add(r.at, uint32(w.size))
	w.totals.add(w.size, &b)
	w.chain = b.crc
	w.out = append(append(w.out[:0], table...), r.stored...)
	return w.append(w.out)
}

// finish completes the rewrite and gives it its name.
func (w *rewriteFile) finish() error {
	w.table.offset = uint32(w.size)
	footer := segmentFooter{
		relocations: uint32(w.size), chain: w.chain, queue: w.header.queue, segment: w.header.segment, totals: w.totals,
	}
	err := w.append(w.table.append(nil))
	footer.offset = uint32(w.size)
	if err == nil {
		err = w.append(footer.append(nil))
	}
	if w.file == nil {
		return err
	}
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		return w.abandon(err)
	}
	if err := w.file.Close(); err != nil {
		return errors.Join(err, w.fs.Remove(w.path()+temporarySuffix))
	}
	if err := w.fs.Rename(w.path()+temporarySuffix, w.path()); err != nil {
		return err
	}
	return w.fs.SyncDir(w.dir)
}

// abandon removes the file. It returns reason, joined with other errors.
func (w *rewriteFile) abandon(reason error) error {
	if w.file == nil {
		return reason
	}
	return errors.Join(reason, w.file.Close(), w.fs.Remove(w.path()+temporarySuffix))
}
