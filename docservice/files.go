package docservice

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

// segmentFile is the file of a segment, or of a rewrite of several, as it lies in
// the directory now.
type segmentFile struct {
	segmentKey
	last    queue.SegmentID // of a rewrite; else id
	sealed  bool            // by its name
	path    string
	version fileVersion
}

// segmentKey tells the files of a queue apart, but for the open and the sealed one
// of the same segment.
type segmentKey struct {
	id         queue.SegmentID // of a rewrite the first
	generation uint32          // of a rewrite; 0: an original
}

// compareKeys orders by number, and what replaces before what is replaced.
func compareKeys(a, b segmentKey) int {
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(b.generation, a.generation))
}

// standsFor tells whether what is in another file is in this one, too, or was left
// out of it on purpose.
func (f segmentFile) standsFor(other segmentFile) bool {
	return f.id <= other.id && other.last <= f.last && f.generation >= other.generation
}

// fileVersion tells a file from another one, or from its own earlier self,
// under the same name.
type fileVersion struct {
	file     vfs.FileID
	bytes    int64
	modified time.Time
}

// listSegments returns the files of the segments in a queue's directory, and the
// rewrites, in the order of their numbers; a sealed one supersedes an open one. It
// opens none. A directory that does not exist yet has none.
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

// sealedName is the name of a sealed segment's file.
func sealedName(id queue.SegmentID) string { return fmt.Sprintf("%010d.seg", id) }

// parseSegmentName reads the names that a queue gives its files.
func parseSegmentName(name string) (segmentFile, bool) {
	n, ok := queue.ParseFileName(name)
	return segmentFile{segmentKey: segmentKey{n.First, n.Generation}, last: n.Last, sealed: n.Sealed}, ok
}

// bytesBefore returns how many bytes of the files, which are in order, lie before
// a place in the queue, and how many there are in all. Files that a rewrite has
// replaced do not count; of a rewrite around the place an even share does.
func bytesBefore(files []segmentFile, at queue.Address) (before, all int64) {
	var around []segmentFile // rewrites that reach to the file, or beyond
	for _, f := range files {
		around = slices.DeleteFunc(around, func(r segmentFile) bool { return r.last < f.id })
		if slices.ContainsFunc(around, func(r segmentFile) bool { return r.standsFor(f) }) {
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
