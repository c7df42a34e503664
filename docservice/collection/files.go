package collection

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/queue"
)

// segmentFile is the file of a segment, or of a rewrite of several segments, in the queue's
// directory.
type segmentFile struct {
	segmentKey
	last    queue.SegmentID // of a rewrite; otherwise id
	sealed  bool            // by its name
	path    string
	version fileVersion
}

// segmentKey identifies a file of a queue. The open and the sealed file of a segment have
// the same key.
type segmentKey struct {
	id         queue.SegmentID // of a rewrite: the first
	generation uint32          // of a rewrite; 0: an original
}

// compareKeys orders by number; a rewrite comes before the segments it replaces.
func compareKeys(a, b segmentKey) int {
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(b.generation, a.generation))
}

// supersedes reports whether the file replaces another: it holds the other's documents or
// left them out intentionally.
func (f segmentFile) supersedes(other segmentFile) bool {
	return f.id <= other.id && other.last <= f.last && f.generation >= other.generation
}

// fileVersion distinguishes a file from another one, or an earlier version, of the same
// name.
type fileVersion struct {
	file     vfs.FileID
	bytes    int64
	modified time.Time
}

// listSegments returns the segments and rewrites in a queue's directory, ordered by number.
// A sealed file supersedes an open one. No file is opened. If the directory does not exist,
// the list is empty.
func listSegments(files vfs.FS, dir string) ([]segmentFile, error) {
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var segments []segmentFile
	for _, name := range names {
		f, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		f.path = filepath.Join(dir, name)
		info, err := files.Stat(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // sealed, replaced or deleted just now
		}
		if err != nil {
			return nil, err
		}
		f.version = fileVersion{file: info.ID, bytes: info.Size, modified: info.ModTime}
		segments = append(segments, f)
	}
	slices.SortFunc(segments, func(a, b segmentFile) int {
		return cmp.Or(compareKeys(a.segmentKey, b.segmentKey), -strings.Compare(a.path, b.path)) // ".seg" before ".open"
	})
	return slices.CompactFunc(segments, func(a, b segmentFile) bool { return a.segmentKey == b.segmentKey }), nil
}

// sealedName returns the file name of a sealed segment.
func sealedName(id queue.SegmentID) string { return fmt.Sprintf("%010d.seg", id) }

// parseSegmentName parses the name of a segment or rewrite.
func parseSegmentName(name string) (segmentFile, bool) {
	n, ok := queue.ParseFileName(name)
	return segmentFile{segmentKey: segmentKey{n.First, n.Generation}, last: n.Last, sealed: n.Sealed}, ok
}

// bytesBefore returns the bytes of the files before an address, and the bytes of all files.
// The files must be in order. Files that a rewrite has replaced do not count; a rewrite
// that spans the address counts proportionally.
func bytesBefore(files []segmentFile, at queue.Address) (before, all int64) {
	var around []segmentFile // rewrites that span the file
	for _, f := range files {
		around = slices.DeleteFunc(around, func(r segmentFile) bool { return r.last < f.id })
		if slices.ContainsFunc(around, func(r segmentFile) bool { return r.supersedes(f) }) {
			continue
		}
		if f.generation > 0 {
			around = append(around, f)
		}
		all += f.version.bytes
		switch {
		case f.last < at.Segment:
			before += f.version.bytes
		case f.generation > 0 && f.id <= at.Segment:
			before += f.version.bytes * int64(at.Segment-f.id) / int64(f.last-f.id+1)
		case f.id == at.Segment:
			before += min(int64(at.Block), f.version.bytes)
		}
	}
	return before, all
}
