package table

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// Writer writes a table in one pass: blocks, their index and a filter. Errors are
// final; the owner must then call Abandon.
//
// Its buffers take at most BufferBytes, or LastingBufferBytes, whatever the size of the
// table. The entry that is being written is not counted.
type Writer struct {
	fs     vfs.FS
	path   string
	file   vfs.File
	number uint64

	headerCRC  uint32 // prefix of the checksum of each block
	bound      []byte // scratch buffer of blockSeed
	charge     memoryCharge
	spool      spool
	output     *output
	joined     bool   // the output has ended
	writeBytes int    // size of a write
	part       []byte // buffer being filled
	offset     uint64 // offset of part in the file, a multiple of writeBytes
	block      blockBuilder
	index      indexBuilder
	filter     *filterOutput
	properties properties
	lastKey    []byte // between calls of Add, kept
	kept       []byte
}

const (
	// BufferBytes is the maximum size of the buffers of a Writer: parts, and the
	// sections in its spool.
	BufferBytes = allParts*(writeBytes+partOverhang) + spooledSections*spoolPieceBytes
	// LastingBufferBytes is BufferBytes for a long-lived table.
	LastingBufferBytes = allParts*(lastingWriteBytes+partOverhang) + spooledSections*spoolPieceBytes
	// spooledSections are the index of the table, and the pages and the index of its filter.
	spooledSections = 3
)

// Create creates a table; lasting means that it will not be merged soon.
// Its spool is at spoolPath.
func Create(env *Env, path, spoolPath string, number uint64, lasting bool) (*Writer, error) {
	file, err := env.FS.Create(path)
	if err != nil {
		return nil, errors.Wrap(err, "lsm: create a table")
	}
	w := &Writer{
		fs: env.FS, path: path, file: file, number: number,
		output: newOutput(file), writeBytes: writeBytes,
		part: encodeHeader(number, env.Store),
	}
	w.charge.count = env.CountBuffer
	w.spool = spool{fs: env.FS, path: spoolPath, charge: &w.charge}
	w.index.spooled.spool = &w.spool
	w.filter = newFilterOutput(&bloom.Options{FalsePositiveRate: env.FalsePositiveRate}, &w.spool)
	w.headerCRC = headerCRC(w.part)
	if lasting {
		w.writeBytes = lastingWriteBytes
	}
	return w, nil
}

// Add appends entries, whose keys must ascend from the last one. drop omits tombstones.
func (w *Writer) Add(entries []kv.Entry, drop bool) error {
	p := &w.properties
	for i := range entries {
		e := &entries[i]
		if e.Tombstone && drop {
			continue
		}
		if p.entries == 0 {
			p.minKey = bytes.Clone(e.Key)
		} else if !precedes(w.lastKey, e.Key) {
			return errors.Wrapf(ErrOutOfOrder, "%.64q after %.64q in %s", e.Key, w.lastKey, w.path)
		}
		if w.block.entries == 0 || !w.block.add(e) {
			if err := w.beginBlock(e); err != nil {
				return err
			}
		}
		w.lastKey = e.Key
		p.entries++
		p.keyBytes += uint64(len(e.Key))
		p.valueBytes += uint64(len(e.Value))
		if e.Tombstone {
			p.tombstones++
		}
	}
	w.kept = append(w.kept[:0], w.lastKey...) // the caller may overwrite the entries
	w.lastKey = w.kept
	return nil
}

// precedes reports whether a is less than b.
func precedes(a, b []byte) bool {
	if len(a) >= 8 && len(b) >= 8 {
		if x, y := binary.BigEndian.Uint64(a), binary.BigEndian.Uint64(b); x != y {
			return x < y
		}
	}
	return bytes.Compare(a, b) < 0
}

// beginBlock completes the current block, if any, and begins another with an entry.
func (w *Writer) beginBlock(e *kv.Entry) error {
	if err := w.endBlock(); err != nil {
		return err
	}
	if isLarge(e) {
		return w.addLarge(e)
	}
	w.makeRoom(partOverhang)
	w.pad()
	w.block.begin(w.part)
	w.block.add(e) // an empty block accepts any entry that is not large
	return nil
}

// pad skips the rest of a page if it is small, because the next block would cross the
// page's end. So a lookup in even entries that fill blocks of about a page touches one
// page, and reads one from the disk.
func (w *Writer) pad() {
	var zeros [maxPaddingBytes]byte
	if rest := pageBytes - int(w.Written()%pageBytes); rest <= maxPaddingBytes {
		w.part = append(w.part, zeros[:rest]...)
	}
}

// Written returns the file offset after the completed blocks.
func (w *Writer) Written() uint64 { return w.offset + uint64(len(w.part)) }

// endBlock completes the current block, if any, and passes full parts to the output.
func (w *Writer) endBlock() error {
	if w.block.entries == 0 {
		return nil
	}
	seed := w.blockSeed()
	if err := w.index.add(w.Written(), w.lastKey); err != nil {
		return err
	}
	var built block
	built, w.part = w.block.finish(seed)
	built.eachKey(w.filter.add)
	return w.handOver()
}

// addLarge writes a block of one entry.
func (w *Writer) addLarge(e *kv.Entry) error {
	seed := w.blockSeed()
	if err := w.index.add(w.Written(), e.Key); err != nil {
		return err
	}
	w.filter.add(e.Key)
	return w.write(largeBlock(e, seed), e.Value)
}

// blockSeed returns the checksum of the bytes before the block that the next block's
// checksum covers.
func (w *Writer) blockSeed() uint32 {
	w.bound = order.AppendUint32(w.bound[:0], uint32(w.index.blocks))
	w.bound = append(w.bound, w.index.last...)
	return checksum.Update(w.headerCRC, w.bound)
}

// Entries returns the number of entries added.
func (w *Writer) Entries() uint64 { return w.properties.entries }

// Added returns the size of the keys and values added.
func (w *Writer) Added() uint64 { return w.properties.keyBytes + w.properties.valueBytes }

// write appends pieces.
func (w *Writer) write(pieces ...[]byte) error {
	for _, piece := range pieces {
		for len(piece) > 0 {
			n := min(len(piece), w.writeBytes-len(w.part))
			w.makeRoom(n)
			w.part = append(w.part, piece[:n]...)
			piece = piece[n:]
			if err := w.handOver(); err != nil {
				return err
			}
		}
	}
	return nil
}

// handOver passes full writes to the output.
func (w *Writer) handOver() error {
	if len(w.part) < w.writeBytes {
		return nil
	}
	rest := w.part[w.writeBytes:]
	fresh, err := w.output.handOver(w.part[:w.writeBytes])
	w.part = fresh
	w.part = append(w.part, rest...)
	w.offset += uint64(w.writeBytes)
	return err
}

// makeRoom grows the current part to have space for bytes more.
func (w *Writer) makeRoom(bytes int) {
	if cap(w.part)-len(w.part) >= bytes {
		return
	}
	room := firstPartBytes
	if len(w.part)+bytes > room || w.offset > 0 {
		room = w.writeBytes + partOverhang
	}
	w.charge.add(room - cap(w.part))
	w.part = append(make([]byte, 0, room), w.part...)
}

// join passes the rest to the output and waits until it is written.
func (w *Writer) join() error {
	if len(w.part) > 0 {
		_, _ = w.output.handOver(w.part) // finish reports the error
	}
	w.joined = true
	return w.output.finish()
}

// Finish writes the parts after the blocks and syncs the file; the caller must sync the
// directory. A table without entries is abandoned and has no facts.
func (w *Writer) Finish(firstSequence, lastSequence uint64) (Facts, error) {
	p := &w.properties
	if p.entries == 0 {
		w.Abandon()
		return Facts{}, nil
	}
	if err := w.endBlock(); err != nil {
		return Facts{}, err
	}
	p.maxKey, p.firstSequence, p.lastSequence = w.lastKey, firstSequence, lastSequence

	var f footer
	err := w.section(&f.index, func(emit func([]byte) error) error { return w.index.finish(p.minKey, p.maxKey, emit) })
	if err == nil {
		err = w.section(&f.filter, w.filter.finish)
	}
	if err == nil {
		err = w.section(&f.properties, func(emit func([]byte) error) error { return emit(p.encode()) })
	}
	if err != nil {
		return Facts{}, err
	}
	w.spool.remove()
	f.fileBytes = w.Written() + footerBytes
	encoded := f.encode()
	if err := w.write(encoded); err != nil {
		return Facts{}, err
	}
	if err := w.join(); err != nil {
		return Facts{}, err
	}
	if err := w.file.Sync(); err != nil {
		return Facts{}, errors.Wrap(err, "lsm: sync a table")
	}
	if err := w.file.Close(); err != nil {
		return Facts{}, errors.Wrap(err, "lsm: close a table")
	}
	w.file = nil
	w.charge.release()
	return Facts{
		Number: w.number, FileBytes: f.fileBytes,
		Entries: p.entries, Tombstones: p.tombstones, KeyBytes: p.keyBytes, ValueBytes: p.valueBytes,
		FirstSequence: firstSequence, LastSequence: lastSequence,
		FooterCRC: order.Uint32(encoded[8:]),
	}, nil
}

// section writes the bytes that write emits, and sets the section to their location.
func (w *Writer) section(at *section, write func(emit func([]byte) error) error) error {
	at.offset = w.Written()
	err := write(func(p []byte) error {
		at.crc = checksum.Update(at.crc, p)
		return w.write(p)
	})
	at.length = w.Written() - at.offset
	return err
}

// Abandon removes the file. If that fails, the next Open removes it.
func (w *Writer) Abandon() {
	w.filter.stop()
	if !w.joined {
		w.joined = true
		_ = w.output.finish() // the table is not needed any more
	}
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
	_ = w.fs.Remove(w.path)
	w.spool.remove()
	w.charge.release()
}
