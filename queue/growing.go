package queue

import (
	"errors"
	"io/fs"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// GrowingSegment reads the committed bytes of a segment while a Writer, possibly in another
// process, appends to it. It is not safe for concurrent use.
type GrowingSegment struct {
	file *segment.File
	walk *segment.Walk
	b    segment.Block
}

// OpenGrowing opens the segment n of the queue in dir, open or sealed. The error matches
// fs.ErrNotExist if the segment has no file: it does not exist yet, or a rewrite
// has replaced it.
func OpenGrowing(fsys vfs.FS, dir string, n SegmentID) (*GrowingSegment, error) {
	var file *segment.File
	var err error
	for _, suffix := range segment.Suffixes {
		if file, err = segment.Open(fsys, segment.Path(dir, n, suffix), n); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, segment.ErrPartial) {
		err = fs.ErrNotExist // its header has not arrived
	}
	if err != nil {
		return nil, err
	}
	return &GrowingSegment{file: file, walk: file.NewWalk()}, nil
}

// Advance returns the end of the committed bytes: the first commit mark at limit or after
// it, or else the last one; 0 if there is no mark. sealed reports that the segment is complete, and end is its
// size. Advance verifies the tables of the blocks, and not the documents.
func (g *GrowingSegment) Advance(limit int64) (end int64, sealed bool, err error) {
	s, w := g.file, g.walk
	info, err := s.Handle.Stat()
	if err != nil {
		return 0, false, err
	}
	if info != s.Info {
		if err := s.Refresh(); err != nil {
			return 0, false, err
		}
	}
	for w.Marked.Blocks == 0 || w.Marked.End < limit { // the header and a dictionary may exceed the limit
		kind, err := w.Step(s, &g.b)
		if kind == segment.FrameFooter && err == nil {
			return s.Info.Size, true, nil
		}
		if segment.IsContent(err) {
			if err = s.Damage(w.Next, err); errors.Is(err, segment.ErrPartial) {
				break
			}
		}
		if err != nil {
			return 0, false, err
		}
	}
	if w.Marked.Blocks == 0 {
		return 0, false, nil
	}
	return w.Marked.End, false, nil
}

// ReadAt implements io.ReaderAt.
func (g *GrowingSegment) ReadAt(p []byte, offset int64) (int, error) {
	return g.file.Handle.ReadAt(p, offset)
}

// Sync makes the bytes that can be read durable, commit marks included: a Writer syncs the
// bytes before a mark, but not the mark. After an error the segment must not be used.
func (g *GrowingSegment) Sync() error { return g.file.Handle.SyncData() }

// Close closes the file.
func (g *GrowingSegment) Close() error { return g.file.Handle.Close() }
