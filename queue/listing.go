package queue

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"docstore/internal/vfs"
)

// covering returns the listed rewrites that have the documents of segment n, the one to
// be read first.
func (l *listing) covering(n SegmentID) []rewriteRun {
	var found []rewriteRun
	end := sort.Search(len(l.rewrites), func(i int) bool { return l.rewrites[i].first > n })
	for i := end - 1; i >= 0 && l.reach[i] >= n; i-- {
		if l.rewrites[i].covers(n) {
			found = append(found, l.rewrites[i])
		}
	}
	slices.SortFunc(found, rewriteRun.compare)
	return found
}

// compare orders rewrites of the same segment: the one to be read comes first.
func (r rewriteRun) compare(other rewriteRun) int {
	return cmp.Or(cmp.Compare(other.generation, r.generation), cmp.Compare(other.last, r.last), cmp.Compare(r.first, other.first))
}

// openCovering opens the rewrite that replaces segment n, or returns nil if no whole one
// exists. It skips damaged rewrites, whose originals may still exist, and returns the
// damage.
func (l *listing) openCovering(fsys vfs.FS, dir string, n SegmentID) (s *segmentFile, damage, err error) {
	for _, run := range l.covering(n) {
		s, err := openSegmentFile(fsys, run.path(dir), n)
		switch {
		case err == nil && s.header.rewrites != run:
			s.close()
			damage = s.corruption(0, errors.New("header names another rewrite"))
		case err == nil:
			return s, damage, nil
		case errors.Is(err, ErrCorrupt):
			damage = err
		case !errors.Is(err, errIncomplete) && !errors.Is(err, fs.ErrNotExist):
			return nil, damage, err
		}
	}
	return nil, damage, nil
}

// listing lists the files of a queue's directory.
type listing struct {
	numbers    []SegmentID // ascending
	sealed     map[SegmentID]bool
	open       map[SegmentID]bool
	rewrites   []rewriteRun // from their names, in the order of their first segments
	reach      []SegmentID  // the highest segment of each rewrite and of those listed before it
	ignored    []string     // names of quarantined files and of files that Repair replaced
	unfinished []string     // names of files left over by a killed writer
}

func list(fsys vfs.FS, dir string) (listing, error) {
	l := listing{sealed: map[SegmentID]bool{}, open: map[SegmentID]bool{}}
	names, err := fsys.List(dir)
	if err != nil {
		return l, err
	}
	for _, name := range names {
		if run, ok := parseRewriteName(name); ok {
			l.rewrites = append(l.rewrites, run)
			continue
		}
		if _, ok := parseIgnoredName(name); ok {
			l.ignored = append(l.ignored, name)
			continue
		}
		n, suffix, ok := parseName(name)
		if !ok {
			continue
		}
		switch suffix {
		case sealedSuffix:
			l.sealed[n] = true
		case openSuffix:
			l.open[n] = true
		default:
			l.unfinished = append(l.unfinished, name)
			continue
		}
		l.numbers = append(l.numbers, n)
	}
	slices.Sort(l.numbers)
	l.numbers = slices.Compact(l.numbers)
	slices.SortFunc(l.rewrites, func(a, b rewriteRun) int { return cmp.Compare(a.first, b.first) })
	var reach SegmentID
	for _, r := range l.rewrites {
		reach = max(reach, r.last)
		l.reach = append(l.reach, reach)
	}
	return l, nil
}

// last returns the highest segment number, including replaced segments; 0: there is none.
func (l *listing) last() SegmentID {
	var last SegmentID
	if n := len(l.numbers); n > 0 {
		last = l.numbers[n-1]
	}
	for _, r := range l.rewrites {
		last = max(last, r.last)
	}
	return last
}

// after reports whether a segment with a number above n exists.
func (l *listing) after(n SegmentID) bool { return l.last() > n }

// places returns the numbers of the originals and the first numbers of the rewrites.
func (l *listing) places() []SegmentID {
	places := slices.Clone(l.numbers)
	for _, r := range l.rewrites {
		places = append(places, r.first)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// rewritten reports whether a listed rewrite has segment n.
func (l *listing) rewritten(n SegmentID) bool { return len(l.covering(n)) > 0 }

// openWhole opens the file of a segment: the rewrite that replaces it, the sealed file,
// or the open one.
func (l *listing) openWhole(fsys vfs.FS, dir string, n SegmentID) (*segmentFile, error) {
	s, _, err := l.openCovering(fsys, dir, n)
	if s != nil || err != nil {
		return s, err
	}
	return openSegmentFile(fsys, segmentPath(dir, n, l.suffixOf(n)), n)
}

// suffixOf returns the suffix of the file of segment n: of two, that of the sealed one.
func (l *listing) suffixOf(n SegmentID) string {
	if l.sealed[n] {
		return sealedSuffix
	}
	return openSuffix
}

// candidate is a file that may have a document: a rewrite, or an original of generation 0.
type candidate struct {
	path string
	run  rewriteRun
}

// candidates returns the files that may have the documents of segment n: the rewrites,
// the highest generation first, and then the segment's own files. A quarantined file comes
// after the file of the same name.
func (l *listing) candidates(dir string, n SegmentID) []candidate {
	var files []candidate
	for _, run := range l.covering(n) {
		files = append(files, candidate{run.path(dir), run})
	}
	for _, suffix := range suffixes {
		files = append(files, candidate{segmentPath(dir, n, suffix), rewriteRun{first: n, last: n}})
	}
	for _, name := range l.ignored {
		f, _ := parseIgnoredName(name)
		if run := (rewriteRun{f.First, f.Last, f.Generation}); run.covers(n) && strings.HasSuffix(name, QuarantineSuffix) {
			files = append(files, candidate{filepath.Join(dir, name), run})
		}
	}
	slices.SortStableFunc(files, func(a, b candidate) int { return a.run.compare(b.run) })
	return files
}

// highestGeneration returns the highest generation of the rewrites that overlap a run.
func (l *listing) highestGeneration(run rewriteRun) (highest uint32) {
	for _, r := range l.rewrites {
		if r.overlaps(run) {
			highest = max(highest, r.generation)
		}
	}
	return highest
}

// oldestReplaced returns the first segment number of the files that a rewrite of a higher
// generation replaces.
func (l *listing) oldestReplaced() (oldest SegmentID, ok bool) {
	for _, r := range l.rewrites {
		for _, n := range l.numbers {
			if r.covers(n) && (!ok || n < oldest) {
				oldest, ok = n, true
			}
		}
		for _, s := range l.rewrites {
			if r.generation > s.generation && r.covers(s.first) && (!ok || s.first < oldest) {
				oldest, ok = s.first, true
			}
		}
	}
	return oldest, ok
}

// replacedBy returns the names of the files that a rewrite replaces, including
// quarantined ones.
func (l *listing) replacedBy(r rewriteRun) (names []string) {
	for _, n := range l.numbers {
		if r.covers(n) && l.sealed[n] {
			names = append(names, filepath.Base(segmentPath("", n, sealedSuffix)))
		}
	}
	for _, s := range l.rewrites {
		if s.generation < r.generation && r.covers(s.first) && r.covers(s.last) {
			names = append(names, s.name())
		}
	}
	for _, name := range l.ignored {
		n, _ := parseIgnoredName(name)
		if n.Generation < r.generation && r.covers(n.First) && r.covers(n.Last) {
			names = append(names, name)
		}
	}
	return names
}
