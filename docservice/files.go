package docservice

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/queue"
)

// segmentFile is the file of a segment, as it lies in the directory now.
type segmentFile struct {
	id      queue.SegmentID
	sealed  bool // by its name
	path    string
	version fileVersion
}

// fileVersion tells a file from another one, or from its own earlier self,
// under the same name.
type fileVersion struct {
	file     vfs.FileID
	bytes    int64
	modified time.Time
}

// listSegments returns the files of the segments in a queue's directory in the
// order of their numbers; a sealed one supersedes an open one. It opens none.
// A directory that does not exist yet has none.
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
		return cmp.Or(cmp.Compare(a.id, b.id), -strings.Compare(a.path, b.path)) // ".seg" before ".open"
	})
	return slices.CompactFunc(segments, func(a, b segmentFile) bool { return a.id == b.id }), nil
}

// sealedName is the name of a sealed segment's file.
func sealedName(id queue.SegmentID) string { return fmt.Sprintf("%010d.seg", id) }

// parseSegmentName reads "NNNNNNNNNN.seg" and "NNNNNNNNNN.open".
func parseSegmentName(name string) (segmentFile, bool) {
	digits, extension, _ := strings.Cut(name, ".")
	if len(digits) != 10 || extension != "seg" && extension != "open" {
		return segmentFile{}, false
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return segmentFile{}, false
	}
	return segmentFile{id: queue.SegmentID(id), sealed: extension == "seg"}, true
}

// bytesBefore returns how many bytes of the files lie before a place in the
// queue, and how many there are in all.
func bytesBefore(files []segmentFile, at queue.Address) (before, all int64) {
	for _, f := range files {
		all += f.version.bytes
		switch {
		case f.id < at.Segment:
			before += f.version.bytes
		case f.id == at.Segment:
			before += min(int64(at.Block), f.version.bytes)
		}
	}
	return before, all
}
