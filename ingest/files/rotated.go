package files

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"docstore/internal/vfs"
)

// A followed log may be replaced several times while it is not read. The files between the one
// that was read and the one that has the name now are in its directory. Their order is that of
// the names that rotations give: log-20261125 is before log-20261126, and log.2 before log.1,
// unless the times of modification show that the numbers ascend. If a number is missing, or the
// file that was read has no such name and newer files have, reading stops.

// rotation is what a rotation has added to the name of a log.
type rotation struct {
	date   string // log-DATE, log.DATE, app-DATE.log of app.log; empty: a number
	number int    // log.NUMBER, 1 for the last one
}

// compressedSuffixes are those of rotated files that are compressed.
var compressedSuffixes = []string{".gz", ".zst", ".xz", ".bz2"}

// uncompressed returns the name that a compressed file had.
func uncompressed(name string) string {
	for _, suffix := range compressedSuffixes {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// rotationOf parses the name of a rotated file of the log.
func rotationOf(name, log string) (r rotation, ok bool) {
	name = uncompressed(name)
	added, ok := strings.CutPrefix(name, log)
	if extension := filepath.Ext(log); !ok && extension != "" {
		if added, ok = strings.CutPrefix(name, strings.TrimSuffix(log, extension)); ok {
			added, ok = strings.CutSuffix(added, extension)
		}
	}
	if !ok || !strings.ContainsAny(added, "0123456789") || strings.Trim(added, "0123456789.-_:TZ+") != "" {
		return r, false
	}
	if n, err := strconv.ParseUint(strings.TrimPrefix(added, "."), 10, 16); err == nil {
		return rotation{number: int(n)}, true
	}
	return rotation{date: added}, true
}

// compare returns the order of two names that a rotation gave; those of numbers ascend.
func (r rotation) compare(s rotation) int {
	return cmp.Or(cmp.Compare(r.number, s.number), compareNatural(r.date, s.date))
}

// compareNatural compares texts, and the numbers in them by value: log-20261126.9 is before
// log-20261126.10.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		x, y := leadingDigits(a), leadingDigits(b)
		if x == "" || y == "" {
			x, y = a[:1], b[:1]
		}
		m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if order := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n)); order != 0 {
			return order
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}

// neighbor is a file in the directory of a log.
type neighbor struct {
	path string
	info vfs.Info
}

// maxLists bounds the lists of a directory in which files are being renamed.
const maxLists = 10

// neighbors returns the files in the directory of a log. A list during which files were renamed
// may lack one, so two lists must agree.
func neighbors(fsys vfs.FS, log string) (files []neighbor, err error) {
	for range maxLists {
		last := files
		if files, err = list(fsys, filepath.Dir(log)); err != nil {
			return nil, err
		}
		if last != nil && slices.EqualFunc(last, files, func(a, b neighbor) bool { return a.path == b.path && a.info.ID == b.info.ID }) {
			break
		}
	}
	return files, nil
}

func list(fsys vfs.FS, dir string) ([]neighbor, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var files []neighbor
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := fsys.Stat(path); err == nil { // else it was renamed or deleted meanwhile
			files = append(files, neighbor{path, info})
		}
	}
	return files, nil
}

// rotatedFile is a file that had the name of a log.
type rotatedFile struct {
	rotation
	neighbor
}

// rotatedFiles returns those of the files that had the name of the log. While a file is being
// compressed both are there: the compressed one is not returned.
func rotatedFiles(files []neighbor, log string) []rotatedFile {
	var rotated []rotatedFile
	for _, f := range files {
		r, ok := rotationOf(filepath.Base(f.path), filepath.Base(log))
		plain := uncompressed(f.path)
		if ok && (plain == f.path || !slices.ContainsFunc(files, func(g neighbor) bool { return g.path == plain })) {
			rotated = append(rotated, rotatedFile{r, f})
		}
	}
	return rotated
}

// between returns the inputs that had the name of in after the file old, which was last modified
// at the time given if it is no longer in the directory, and before the file now. It fails if
// it cannot tell them, or one is missing.
func between(in *input, old vfs.FileID, modified time.Time, now vfs.FileID) ([]*input, error) {
	files, err := neighbors(in.fs, in.from.Path)
	if err != nil || old == now { // truncated in place
		return nil, err
	}
	if i := slices.IndexFunc(files, func(f neighbor) bool { return f.info.ID == old }); i >= 0 {
		modified = files[i].info.ModTime
	}
	rotated := rotatedFiles(files, in.from.Path)
	var missed []rotatedFile
	if i := slices.IndexFunc(rotated, func(f rotatedFile) bool { return f.info.ID == old }); i >= 0 {
		missed, err = rotatedAfter(rotated[i], rotated)
	} else if i := slices.IndexFunc(rotated, func(f rotatedFile) bool { return f.info.ModTime.After(modified) }); i >= 0 {
		err = fmt.Errorf("the file that was read is no longer among the rotated ones, and %s is newer", rotated[i].path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s was replaced more than once: %w; restore the file, append those that are left by name, or read only %[1]s with --resume=false", in.name, err)
	}
	var inputs []*input
	for _, f := range missed {
		if f.info.ID == now { // it was renamed since
			break
		}
		next, err := inspect(in.fs, f.path, in.format, in.encoding)
		if err != nil {
			return nil, err
		}
		next.index, next.from.Path = in.index, in.from.Path
		inputs = append(inputs, next)
	}
	return inputs, nil
}

// rotatedAfter returns the files that were rotated after old, in order. Those that were modified
// before it are left from earlier rotations.
func rotatedAfter(old rotatedFile, rotated []rotatedFile) ([]rotatedFile, error) {
	direction := -1 // of numbers: the last one is 1
	if old.date != "" {
		direction = 1
	}
	var same []rotatedFile // have a date, or a number, as old has
	for _, f := range rotated {
		if (f.date == "") != (old.date == "") {
			continue
		}
		same = append(same, f)
		switch order := f.compare(old.rotation); {
		case order < 0 && f.info.ModTime.Before(old.info.ModTime), order > 0 && f.info.ModTime.After(old.info.ModTime):
			direction = 1
		}
	}
	same = slices.DeleteFunc(same, func(f rotatedFile) bool {
		return f.compare(old.rotation)*direction <= 0 || f.info.ModTime.Before(old.info.ModTime)
	})
	slices.SortFunc(same, func(a, b rotatedFile) int { return a.compare(b.rotation) * direction })
	if old.date != "" {
		return same, nil
	}
	next := old.number + direction
	for _, f := range same {
		if f.number != next {
			break
		}
		next += direction
	}
	if direction < 0 && next > 0 || direction > 0 && next <= old.number+len(same) {
		return nil, fmt.Errorf("the file with the number %d, after %s, is missing", next, old.path)
	}
	return same, nil
}

// findReplaced returns the renamed file that was read under the name of a followed file, nil if
// there is none.
func findReplaced(in *input, at cursor) (*input, error) {
	files, err := neighbors(in.fs, in.from.Path)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.info.ID != at.File || (&input{fs: in.fs, name: f.path}).checkHead(context.Background(), &at) != nil {
			continue
		}
		old, err := inspect(in.fs, f.path, in.format, in.encoding)
		if err != nil {
			return nil, err
		}
		old.index, old.from.Path, old.gen = in.index, in.from.Path, unordered
		return old, old.resumeAt(context.Background(), at)
	}
	return nil, nil
}
