package files

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"docstore/internal/vfs"
)

// A followed log may be replaced several times while it is not read. The files between the one
// that was read and the one that has the name now are in its directory. Their order is that of
// the names that rotations give: log.2 is before log.1, log-20261125 before log-20261126.

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

// after reports whether a file was rotated after another one. Numbers and dates have no order.
func (r rotation) after(s rotation) bool {
	if r.date == "" && s.date == "" {
		return r.number < s.number
	}
	return r.date != "" && s.date != "" && r.date > s.date
}

// neighbor is a file in the directory of a log.
type neighbor struct {
	path string
	info vfs.Info
}

// neighbors returns the files in the directory of a log.
func neighbors(log string) ([]neighbor, error) {
	dir := filepath.Dir(log)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []neighbor
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if info, err := vfs.OS.Stat(path); err == nil { // else it was renamed or deleted meanwhile
			files = append(files, neighbor{path, info})
		}
	}
	return files, nil
}

// between returns the inputs that had the name of in after the file old and before the file
// now. They have the generations after first.
func between(in *input, old, now vfs.FileID, first generation) ([]*input, error) {
	files, err := neighbors(in.from.Path)
	if err != nil {
		return nil, err
	}
	log := filepath.Base(in.from.Path)
	at := slices.IndexFunc(files, func(f neighbor) bool { return f.info.ID == old })
	if at < 0 || old == now {
		return nil, nil // it was deleted, or truncated in place
	}
	since, ok := rotationOf(filepath.Base(files[at].path), log)
	if !ok {
		return nil, nil // renamed by hand
	}
	type found struct {
		rotation
		neighbor
	}
	var missed []found
	for _, f := range files {
		r, ok := rotationOf(filepath.Base(f.path), log)
		if !ok || !r.after(since) || f.info.ID == now || f.info.ModTime.Before(files[at].info.ModTime) {
			continue
		}
		// While a file is being compressed both are there.
		if plain := uncompressed(f.path); plain != f.path && slices.ContainsFunc(files, func(g neighbor) bool { return g.path == plain }) {
			continue
		}
		missed = append(missed, found{r, f})
	}
	slices.SortFunc(missed, func(a, b found) int {
		return cmp.Or(strings.Compare(a.date, b.date), cmp.Compare(b.number, a.number))
	})
	var inputs []*input
	for i, f := range missed {
		next, err := inspect(f.path, in.format)
		if err != nil {
			return nil, err
		}
		next.index, next.gen = in.index, first+1+generation(i)
		inputs = append(inputs, next)
	}
	return inputs, nil
}

// findReplaced returns the renamed file that was read under the name of a followed file, nil if
// there is none.
func findReplaced(in *input, at cursor) (*input, error) {
	files, err := neighbors(in.from.Path)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.info.ID != at.File || (&input{name: f.path}).checkHead(context.Background(), &at) != nil {
			continue
		}
		old, err := inspect(f.path, in.format)
		if err != nil {
			return nil, err
		}
		old.index, old.gen = in.index, replaced
		return old, old.resumeAt(context.Background(), at)
	}
	return nil, nil
}
