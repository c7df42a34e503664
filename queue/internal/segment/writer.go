package segment

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"docstore/internal/vfs"
)

// Writer writes one segment, from its header to its footer. The first error is
// final for the file.
type Writer struct {
	fs     vfs.FS
	dir    string
	file   vfs.File
	Header Header
	size   int64 // of the file; the offset of the next frame
	Chain  uint32
	Totals
	End      int64                    // after the last block; 0: there is none
	unmarked bool                     // blocks follow the last commit mark
	started  int64                    // writeback of everything before this offset has started
	Synced   func(took time.Duration) // see WriterOptions; nil: none
}

// writebackBytes is the amount of new data after which the writer starts writeback, so
// that little is left to write at the next commit.
const writebackBytes = 1 << 20

// Create creates the file of a new segment. The header is durable before the file
// gets its name, and the name before Create returns. So an open segment without a
// header is damage and never the result of a crash.
func Create(fsys vfs.FS, dir string, header Header, dictionary []byte) (*Writer, error) {
	beginning := append(header.Encode(), dictionary...)
	unfinished := Path(dir, header.Segment, newSuffix)
	if err := writeNew(fsys, unfinished, beginning); err != nil {
		return nil, err
	}
	name := Path(dir, header.Segment, OpenSuffix)
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
	return &Writer{
		fs: fsys, dir: dir, file: file, Header: header,
		size: int64(len(beginning)), Chain: header.CRC,
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

// WriteBlock writes the block for the address, neither durable nor committed.
func (s *Writer) WriteBlock(at Address, encoded []byte) error {
	h, err := ParseBlockHeader(encoded)
	if err != nil {
		return err
	}
	offset := s.size
	if at != (Address{Segment: s.Header.Segment, Block: uint32(offset)}) {
		return fmt.Errorf("block was encoded for %s, the next offset of segment %d is %d", at, s.Header.Segment, offset)
	}
	if err := s.write(encoded); err != nil {
		return err
	}
	s.Add(offset, &Block{BlockHeader: h, Bytes: encoded[:h.DataOffset()]})
	s.Chain, s.End, s.unmarked = h.CRC, s.size, true
	if s.size-s.started >= writebackBytes {
		vfs.StartWriteback(s.file, s.started, s.size-s.started)
		s.started = s.size
	}
	return nil
}

// Commit makes all blocks durable and then writes a commit mark.
func (s *Writer) Commit() error {
	if !s.unmarked {
		return nil
	}
	if err := s.Sync(); err != nil {
		return err
	}
	s.unmarked, s.started = false, s.size
	return s.write(commitMark{offset: uint32(s.size), chain: s.Chain}.append(nil))
}

// Sync makes all blocks durable.
func (s *Writer) Sync() error {
	begun := time.Now()
	err := s.file.SyncData()
	if s.Synced != nil {
		s.Synced(time.Since(begun))
	}
	return err
}

// Seal makes all blocks durable, writes the footer and gives the segment its final name.
// It always closes the file.
func (s *Writer) Seal() (*Footer, error) {
	footer := &Footer{
		Offset: uint32(s.size), Chain: s.Chain, Queue: s.Header.Queue, Segment: s.Header.Segment, Totals: s.Totals,
	}
	err := s.Sync()
	if err == nil {
		err = s.write(footer.append(nil))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return footer, s.finish()
}

// finish makes a segment with a footer durable and gives it its final name. It always
// closes the file.
func (s *Writer) finish() error {
	err := s.file.Sync()
	if closing := s.file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	return rename(s.fs, s.dir, s.Header.Segment)
}

// rename gives a segment that has its footer the name of a sealed one.
func rename(fsys vfs.FS, dir string, n ID) error {
	err := fsys.Rename(Path(dir, n, OpenSuffix), Path(dir, n, SealedSuffix))
	if err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

func (s *Writer) write(p []byte) error {
	if _, err := s.file.Write(p); err != nil {
		return err
	}
	s.size += int64(len(p))
	return nil
}

// Close closes the file without sealing the segment.
func (s *Writer) Close() { s.file.Close() }

// SealAgain writes the end of an open segment again and seals it: if whole is true, after
// its last whole block, else after its last commit mark, where w is.
func (s *File) SealAgain(fsys vfs.FS, w *Walk, whole bool, logger *slog.Logger) error {
	file, err := fsys.OpenAppend(s.Path)
	if err != nil {
		return err
	}
	sw := &Writer{fs: fsys, dir: filepath.Dir(s.Path), file: file, Header: s.Header}
	if err := s.writeAgain(file, max(w.Next-MarkBytes, s.Header.FirstFrame())); err != nil {
		sw.Close()
		return err
	}
	if s.Footer != nil { // the crash was before the rename
		return sw.finish()
	}
	if whole {
		if err := w.passWhole(s); err != nil {
			sw.Close()
			return err
		}
	}
	lost := s.Info.Size - w.Next
	logger.Warn("sealing a segment that was not closed", "path", s.Path,
		"entries", w.Seen.Entries, "bytes", w.Next, "unfinished_bytes", lost)
	if lost > 0 {
		if err := file.Truncate(w.Next); err != nil {
			sw.Close()
			return err
		}
	}
	sw.size, sw.Chain, sw.Totals = w.Next, w.Chain, w.Seen
	_, err = sw.Seal()
	return err
}

// writeAgain rewrites the bytes from an offset to the end of the file. After a failed
// sync the kernel may mark pages as clean although the disk does not have them: reads
// return them, and no later sync writes them or reports an error. Rewriting makes the
// pages dirty again.
//
// It runs before the bytes are verified, because until they are rewritten a later read
// may not return them.
func (s *File) writeAgain(file vfs.File, from int64) error {
	buffer := make([]byte, max(0, min(ScanBytes, s.Info.Size-from)))
	for from < s.Info.Size {
		window := buffer[:min(ScanBytes, s.Info.Size-from)]
		if err := s.ReadAt(window, from); err != nil {
			return err
		}
		if _, err := file.WriteAt(window, from); err != nil {
			return err
		}
		from += int64(len(window))
	}
	return nil
}
