package queue

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"docstore/internal/vfs"
)

// segmentWriter writes one segment, from its header to its footer. The first error is
// final for the file.
type segmentWriter struct {
	fs     vfs.FS
	dir    string
	file   vfs.File
	header segmentHeader
	size   int64 // of the file; the offset of the next frame
	chain  uint32
	totals
	end      int64                    // after the last block; 0: there is none
	unmarked bool                     // blocks follow the last commit mark
	started  int64                    // writeback of everything before this offset has started
	synced   func(took time.Duration) // see WriterOptions; nil: none
}

// writebackBytes is the amount of new data after which the writer starts writeback, so
// that little is left to write at the next commit.
const writebackBytes = 1 << 20

// createSegment creates the file of a new segment. The header is durable before the file
// gets its name, and the name before createSegment returns. So an open segment without a
// header is damage and never the result of a crash.
func createSegment(fsys vfs.FS, dir string, header segmentHeader, dictionary []byte) (*segmentWriter, error) {
	beginning := append(header.encode(), dictionary...)
	unfinished := segmentPath(dir, header.segment, newSuffix)
	if err := writeNew(fsys, unfinished, beginning); err != nil {
		return nil, err
	}
	name := segmentPath(dir, header.segment, openSuffix)
	if err := fsys.Rename(unfinished, name); err != nil {
		return nil, err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return nil, err
	}
	file, err := fsys.OpenAppend(name)
	if err != nil {
		return nil, err
	}
	return &segmentWriter{
		fs: fsys, dir: dir, file: file, header: header,
		size: int64(len(beginning)), chain: header.crc,
	}, nil
}

// writeNew creates a durable file.
func writeNew(fsys vfs.FS, name string, content []byte) error {
	file, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	return err
}

// writeBlock writes the block for the address, neither durable nor committed.
func (s *segmentWriter) writeBlock(at Address, encoded []byte) error {
	h, err := parseBlockHeader(encoded)
	if err != nil {
		return err
	}
	offset := s.size
	if at != (Address{Segment: s.header.segment, Block: uint32(offset)}) {
		return fmt.Errorf("block was encoded for %s, the next offset of segment %d is %d", at, s.header.segment, offset)
	}
	if err := s.write(encoded); err != nil {
		return err
	}
	s.add(offset, &block{blockHeader: h, bytes: encoded[:h.dataOffset()]})
	s.chain, s.end, s.unmarked = h.crc, s.size, true
	if s.size-s.started >= writebackBytes {
		vfs.StartWriteback(s.file, s.started, s.size-s.started)
		s.started = s.size
	}
	return nil
}

// commit makes all blocks durable and then writes a commit mark.
func (s *segmentWriter) commit() error {
	if !s.unmarked {
		return nil
	}
	if err := s.sync(); err != nil {
		return err
	}
	s.unmarked, s.started = false, s.size
	return s.write(commitMark{offset: uint32(s.size), chain: s.chain}.append(nil))
}

// sync makes all blocks durable.
func (s *segmentWriter) sync() error {
	begun := time.Now()
	err := s.file.SyncData()
	if s.synced != nil {
		s.synced(time.Since(begun))
	}
	return err
}

// seal makes all blocks durable, writes the footer and gives the segment its final name.
// It always closes the file.
func (s *segmentWriter) seal() (*segmentFooter, error) {
	footer := &segmentFooter{
		offset: uint32(s.size), chain: s.chain, queue: s.header.queue, segment: s.header.segment, totals: s.totals,
	}
	err := s.sync()
	if err == nil {
		err = s.write(footer.append(nil))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return footer, s.finish()
}

// finish makes a segment with a footer durable and gives it its final name. It always
// closes the file.
func (s *segmentWriter) finish() error {
	err := s.file.Sync()
	if closing := s.file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	return rename(s.fs, s.dir, s.header.segment)
}

// rename gives a segment that has its footer the name of a sealed one.
func rename(fsys vfs.FS, dir string, n SegmentID) error {
	err := fsys.Rename(segmentPath(dir, n, openSuffix), segmentPath(dir, n, sealedSuffix))
	if err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

func (s *segmentWriter) write(p []byte) error {
	if _, err := s.file.Write(p); err != nil {
		return err
	}
	s.size += int64(len(p))
	return nil
}

func (s *segmentWriter) close() { s.file.Close() }

// sealAgain writes the end of an open segment again and seals it after its last whole block. w
// is at the last commit mark.
func (s *segmentFile) sealAgain(fsys vfs.FS, w *walk, logger *slog.Logger) error {
	file, err := fsys.OpenAppend(s.path)
	if err != nil {
		return err
	}
	sw := &segmentWriter{fs: fsys, dir: filepath.Dir(s.path), file: file, header: s.header}
	if err := s.writeAgain(file, max(w.next-markBytes, s.header.firstFrame())); err != nil {
		sw.close()
		return err
	}
	if s.footer != nil { // the crash was before the rename
		return sw.finish()
	}
	if err := w.passWhole(s); err != nil {
		sw.close()
		return err
	}
	lost := s.info.Size - w.next
	logger.Warn("sealing a segment that was not closed", "path", s.path,
		"entries", w.seen.entries, "bytes", w.next, "unfinished_bytes", lost)
	if lost > 0 {
		if err := file.Truncate(w.next); err != nil {
			sw.close()
			return err
		}
	}
	sw.size, sw.chain, sw.totals = w.next, w.chain, w.seen
	_, err = sw.seal()
	return err
}

// writeAgain rewrites the bytes from an offset to the end of the file. After a failed
// sync the kernel may mark pages as clean although the disk does not have them: reads
// return them, and no later sync writes them or reports an error. Rewriting makes the
// pages dirty again.
//
// It runs before the bytes are verified, because until they are rewritten a later read
// may not return them.
func (s *segmentFile) writeAgain(file vfs.File, from int64) error {
	buffer := make([]byte, max(0, min(scanBytes, s.info.Size-from)))
	for from < s.info.Size {
		window := buffer[:min(scanBytes, s.info.Size-from)]
		if err := s.readAt(window, from); err != nil {
			return err
		}
		if _, err := file.WriteAt(window, from); err != nil {
			return err
		}
		from += int64(len(window))
	}
	return nil
}
