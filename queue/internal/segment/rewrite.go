package segment

import (
	"errors"
	"fmt"
	"slices"

	"docstore/internal/vfs"
)

// Rewrite is a rewrite that is being written, under a temporary name. It gets its
// final name when it is durable.
type Rewrite struct {
	Fs     vfs.FS
	Dir    string
	file   vfs.File // nil: bytes are counted and not written
	Header Header
	Size   int64
	chain  uint32
	Totals Totals
	Table  Relocations // without its offset
	out    []byte
}

// TemporarySuffix ends the name of an incomplete rewrite.
const TemporarySuffix = ".compact"

// CreateRewrite creates the file of the rewrite header.rewrites.
func CreateRewrite(fsys vfs.FS, dir string, header Header, dictionary []byte) (*Rewrite, error) {
	file, err := fsys.Create(header.Rewrites.Path(dir) + TemporarySuffix)
	if err != nil {
		return nil, err
	}
	w := &Rewrite{Fs: fsys, Dir: dir, file: file}
	if err := w.Begin(header, dictionary); err != nil {
		return nil, w.Abandon(err)
	}
	return w, nil
}

// Begin writes header and dictionary.
func (w *Rewrite) Begin(header Header, dictionary []byte) error {
	header.SetDictionary(dictionary)
	beginning := append(header.Encode(), dictionary...)
	w.Header, w.chain = header, header.CRC
	return w.append(beginning)
}

// Path returns the final path of the file.
func (w *Rewrite) Path() string { return w.Header.Rewrites.Path(w.Dir) }

func (w *Rewrite) append(p []byte) error {
	if w.Size+int64(len(p)) > MaxSegmentBytes {
		return fmt.Errorf("the rewrite of segments %d to %d exceeds the maximum of %d bytes", w.Header.Rewrites.First, w.Header.Rewrites.Last, int64(MaxSegmentBytes))
	}
	if w.file != nil {
		if _, err := w.file.Write(p); err != nil {
			return err
		}
	}
	w.Size += int64(len(p))
	return nil
}

// RelocatedBlock is the kept part of a block.
type RelocatedBlock struct {
	at       Address // of the block's first entry
	end      uint32  // offset after the block in its original segment
	chain    uint32  // checksum of the original block; 0: unknown
	appended int64
	cursor   []byte // of the original block
	count    int

	entries, expiries, indexes, ids, stored []byte
	expire                                  bool // any entry expires
}

// Reset begins the next block. The cursor is that of the original block; nil: not all that was
// read before it is in the block, or it is unknown. The caller must not change it before Write.
func (r *RelocatedBlock) Reset(at Address, end, chain uint32, appended int64, cursor []byte) {
	*r = RelocatedBlock{
		at: at, end: end, chain: chain, appended: appended, cursor: cursor,
		entries: r.entries[:0], expiries: r.expiries[:0], indexes: r.indexes[:0], ids: r.ids[:0], stored: r.stored[:0],
	}
}

// Add appends the entry with an index in the original block.
func (r *RelocatedBlock) Add(index uint16, id, stored []byte, rawAndFlags, crc, expiry uint32) {
	r.ids, r.stored = append(r.ids, id...), append(r.stored, stored...)
	r.entries = Little.AppendUint32(r.entries, uint32(len(r.stored)))
	r.entries = Little.AppendUint32(r.entries, uint32(len(r.ids)))
	r.entries = Little.AppendUint32(r.entries, rawAndFlags)
	r.entries = Little.AppendUint32(r.entries, crc)
	r.expiries = Little.AppendUint32(r.expiries, expiry)
	r.expire = r.expire || expiry != 0
	r.indexes = Little.AppendUint16(r.indexes, index)
	r.count++
}

// AddBare appends an entry without its document. flags state the reason.
func (r *RelocatedBlock) AddBare(index uint16, id []byte, flags, expiry uint32) {
	at := r.at
	at.Index = index
	r.Add(index, id, nil, flags, DocumentCRC(at, flags, id, nil), expiry)
}

// Write writes the block, unless it has no entries.
func (w *Rewrite) Write(r *RelocatedBlock) error {
	if r.count == 0 {
		return nil
	}
	h := BlockHeader{
		RelocatedBlock: true, Expiries: r.expire, Count: r.count, DataBytes: uint32(len(r.stored)),
		Previous: w.chain, Appended: r.appended, cursorBytes: len(r.cursor),
	}
	expiries := r.expiries
	if !r.expire {
		expiries = nil
	}
	var origin [OriginBytes]byte
	Little.PutUint32(origin[0:], uint32(r.at.Segment))
	Little.PutUint32(origin[4:], r.at.Block)
	Little.PutUint32(origin[8:], r.end)
	Little.PutUint32(origin[12:], r.chain)
	table := slices.Concat(make([]byte, BlockHeaderBytes), r.entries, expiries, origin[:], r.indexes, r.ids, r.cursor)
	h.tableBytes = uint32(len(table) - BlockHeaderBytes)
	h.put(table)
	sealFrame(table)
	b := Block{Bytes: table}
	if err := b.Parse(); err != nil {
		return err
	}
	w.Table.add(r.at, uint32(w.Size))
	w.Totals.Add(w.Size, &b)
	w.chain = b.CRC
	w.out = append(append(w.out[:0], table...), r.stored...)
	return w.append(w.out)
}

// Finish completes the rewrite and gives it its name.
func (w *Rewrite) Finish() error {
	w.Table.offset = uint32(w.Size)
	footer := Footer{
		Relocations: uint32(w.Size), Chain: w.chain, Queue: w.Header.Queue, Segment: w.Header.Segment, Totals: w.Totals,
	}
	err := w.append(w.Table.append(nil))
	footer.Offset = uint32(w.Size)
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
		return w.Abandon(err)
	}
	if err := w.file.Close(); err != nil {
		return errors.Join(err, w.Fs.Remove(w.Path()+TemporarySuffix))
	}
	if err := w.Fs.Rename(w.Path()+TemporarySuffix, w.Path()); err != nil {
		return err
	}
	return w.Fs.SyncDir(w.Dir)
}

// Abandon removes the file. It returns reason, joined with other errors.
func (w *Rewrite) Abandon(reason error) error {
	if w.file == nil {
		return reason
	}
	return errors.Join(reason, w.file.Close(), w.Fs.Remove(w.Path()+TemporarySuffix))
}
