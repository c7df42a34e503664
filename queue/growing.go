package queue

import (
	"errors"
	"io/fs"

	"docstore/internal/vfs"
)

// GrowingSegment reads the committed bytes of a segment while a Writer, possibly in another
// process, appends to it. It is not safe for concurrent use.
type GrowingSegment struct {
	file *segmentFile
	walk *walk
	b    block
}

// OpenGrowing opens the segment n of the queue in dir, open or sealed. The error matches
// fs.ErrNotExist if the segment has no file: it does not exist yet, or a rewrite
// has replaced it.
func OpenGrowing(fsys vfs.FS, dir string, n SegmentID) (*GrowingSegment, error) {
	var file *segmentFile
	var err error
	for _, suffix := range suffixes {
		if file, err = openSegmentFile(fsys, segmentPath(dir, n, suffix), n); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, errIncomplete) {
		err = fs.ErrNotExist // its header has not arrived
	}
	if err != nil {
		return nil, err
	}
	return &GrowingSegment{file: file, walk: file.newWalk()}, nil
}

// Advance returns the end of the committed bytes: the first commit mark at limit or after
// it, or else the last one; 0 if there is no mark. sealed reports that the segment is complete, and end is its
// size. Advance verifies the tables of the blocks, and not the documents.
func (g *GrowingSegment) Advance(limit int64) (end int64, sealed bool, err error) {
	s, w := g.file, g.walk
	info, err := s.file.Stat()
	if err != nil {
		return 0, false, err
	}
	if info != s.info {
		if err := s.refresh(); err != nil {
			return 0, false, err
		}
	}
	for w.marked.end < limit {
		kind, err := w.step(s, &g.b)
		if kind == frameFooter && err == nil {
			return s.info.Size, true, nil
		}
		if isContent(err) {
			if err = s.damage(w.next, err); errors.Is(err, errIncomplete) {
				break
			}
		}
		if err != nil {
			return 0, false, err
		}
	}
	if w.marked.blocks == 0 {
		return 0, false, nil
	}
	return w.marked.end, false, nil
}

// ReadAt implements io.ReaderAt.
func (g *GrowingSegment) ReadAt(p []byte, offset int64) (int, error) {
	return g.file.file.ReadAt(p, offset)
}

// Sync makes the bytes that can be read durable, commit marks included: a Writer syncs the
// bytes before a mark, but not the mark. After an error the segment must not be used.
func (g *GrowingSegment) Sync() error { return g.file.file.SyncData() }

// Close closes the file.
func (g *GrowingSegment) Close() error { return g.file.file.Close() }

// OpenSegmentName returns the name of the file of a segment that is being written.
func OpenSegmentName(n SegmentID) string { return segmentPath("", n, openSuffix) }
