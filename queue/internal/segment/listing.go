package segment

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"docstore/internal/vfs"
	"docstore/queue/stored"
)

// Covering returns the listed rewrites that have the documents of segment n, the one to
// be read first.
func (l *Listing) Covering(n ID) []Run {
	var found []Run
	end := sort.Search(len(l.Rewrites), func(i int) bool { return l.Rewrites[i].First > n })
	for i := end - 1; i >= 0 && l.reach[i] >= n; i-- {
		if l.Rewrites[i].Covers(n) {
			found = append(found, l.Rewrites[i])
		}
	}
	slices.SortFunc(found, Run.compare)
	return found
}

// compare orders rewrites of the same segment: the one to be read comes first.
func (r Run) compare(other Run) int {
	return cmp.Or(cmp.Compare(other.Generation, r.Generation), cmp.Compare(other.Last, r.Last), cmp.Compare(r.First, other.First))
}

// OpenRewrite opens the file of a rewrite. A file of another rewrite is damaged.
func OpenRewrite(fsys vfs.FS, dir string, run Run) (*File, error) {
	s, err := Open(fsys, run.Path(dir), run.First)
	if err == nil && s.Header.Rewrites != run {
		s.Close()
		return nil, s.Corruption(0, errors.New("header names another rewrite"))
	}
	return s, err
}

// OpenCovering opens the rewrite that replaces segment n, or returns nil if no whole one
// exists. It skips damaged rewrites, whose originals may still exist, and returns the
// damage.
func (l *Listing) OpenCovering(fsys vfs.FS, dir string, n ID) (s *File, damage, err error) {
	for _, run := range l.Covering(n) {
		s, err := OpenRewrite(fsys, dir, run)
		switch {
		case err == nil:
			return s, damage, nil
		case errors.Is(err, stored.ErrCorrupt):
			damage = err
		case !errors.Is(err, ErrPartial) && !errors.Is(err, fs.ErrNotExist):
			return nil, damage, err
		}
	}
	return nil, damage, nil
}

// Listing lists the files of a queue's directory.
type Listing struct {
	Numbers    []ID // ascending
	Sealed     map[ID]bool
	Open       map[ID]bool
	Rewrites   []Run    // from their names, in the order of their first segments
	reach      []ID     // the highest segment of each rewrite and of those listed before it
	Ignored    []string // names of quarantined files and of files that Repair replaced
	Unfinished []string // names of files left over by a killed writer
}

// List lists the files of a queue's directory.
func List(fsys vfs.FS, dir string) (Listing, error) {
	l := Listing{Sealed: map[ID]bool{}, Open: map[ID]bool{}}
	names, err := fsys.List(dir)
	if err != nil {
		return l, err
	}
	for _, name := range names {
		if run, ok := ParseRewriteName(name); ok {
			l.Rewrites = append(l.Rewrites, run)
			continue
		}
		if _, ok := ParseIgnoredName(name); ok {
			l.Ignored = append(l.Ignored, name)
			continue
		}
		n, suffix, ok := ParseName(name)
		if !ok {
			continue
		}
		switch suffix {
		case SealedSuffix:
			l.Sealed[n] = true
		case OpenSuffix:
			l.Open[n] = true
		default:
			l.Unfinished = append(l.Unfinished, name)
			continue
		}
		l.Numbers = append(l.Numbers, n)
	}
	slices.Sort(l.Numbers)
	l.Numbers = slices.Compact(l.Numbers)
	slices.SortFunc(l.Rewrites, func(a, b Run) int { return cmp.Compare(a.First, b.First) })
	var reach ID
	for _, r := range l.Rewrites {
		reach = max(reach, r.Last)
		l.reach = append(l.reach, reach)
	}
	return l, nil
}

// Last returns the highest segment number, including replaced segments; 0: there is none.
func (l *Listing) Last() ID {
	var last ID
	if n := len(l.Numbers); n > 0 {
		last = l.Numbers[n-1]
	}
	for _, r := range l.Rewrites {
		last = max(last, r.Last)
	}
	return last
}

// After reports whether a segment with a number above n exists.
func (l *Listing) After(n ID) bool { return l.Last() > n }

// Places returns the numbers of the originals and the first numbers of the rewrites.
func (l *Listing) Places() []ID {
	places := slices.Clone(l.Numbers)
	for _, r := range l.Rewrites {
		places = append(places, r.First)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// Rewritten reports whether a listed rewrite has segment n.
func (l *Listing) Rewritten(n ID) bool { return len(l.Covering(n)) > 0 }

// OpenWhole opens the file of a segment: the rewrite that replaces it, the sealed file,
// or the open one.
func (l *Listing) OpenWhole(fsys vfs.FS, dir string, n ID) (*File, error) {
	s, _, err := l.OpenCovering(fsys, dir, n)
	if s != nil || err != nil {
		return s, err
	}
	return Open(fsys, Path(dir, n, l.SuffixOf(n)), n)
}

// SuffixOf returns the suffix of the file of segment n: of two, that of the sealed one.
func (l *Listing) SuffixOf(n ID) string {
	if l.Sealed[n] {
		return SealedSuffix
	}
	return OpenSuffix
}

// Candidate is a file that may have a document: a rewrite, or an original of generation 0.
type Candidate struct {
	Path string
	Run  Run
}

// Candidates returns the files that may have the documents of segment n: the rewrites,
// the highest generation first, and then the segment's own files. A quarantined file comes
// after the file of the same name.
func (l *Listing) Candidates(dir string, n ID) []Candidate {
	var files []Candidate
	for _, run := range l.Covering(n) {
		files = append(files, Candidate{run.Path(dir), run})
	}
	for _, suffix := range Suffixes {
		files = append(files, Candidate{Path(dir, n, suffix), Run{First: n, Last: n}})
	}
	for _, name := range l.Ignored {
		f, _ := ParseIgnoredName(name)
		if run := (Run{f.First, f.Last, f.Generation}); run.Covers(n) && strings.HasSuffix(name, QuarantineSuffix) {
			files = append(files, Candidate{filepath.Join(dir, name), run})
		}
	}
	slices.SortStableFunc(files, func(a, b Candidate) int { return a.Run.compare(b.Run) })
	return files
}

// HighestGeneration returns the highest generation of the rewrites that overlap a run.
func (l *Listing) HighestGeneration(run Run) (highest uint32) {
	for _, r := range l.Rewrites {
		if r.Overlaps(run) {
			highest = max(highest, r.Generation)
		}
	}
	return highest
}

// OldestReplaced returns the first segment number of the files that a rewrite of a higher
// generation replaces.
func (l *Listing) OldestReplaced() (oldest ID, ok bool) {
	for _, r := range l.Rewrites {
		for _, n := range l.Numbers {
			if r.Covers(n) && (!ok || n < oldest) {
				oldest, ok = n, true
			}
		}
		for _, s := range l.Rewrites {
			if r.Generation > s.Generation && r.Covers(s.First) && (!ok || s.First < oldest) {
				oldest, ok = s.First, true
			}
		}
	}
	return oldest, ok
}

// ReplacedBy returns the names of the files that a rewrite replaces, including
// quarantined ones.
func (l *Listing) ReplacedBy(r Run) (names []string) {
	for _, n := range l.Numbers {
		if r.Covers(n) && l.Sealed[n] {
			names = append(names, filepath.Base(Path("", n, SealedSuffix)))
		}
	}
	for _, s := range l.Rewrites {
		if s.Generation < r.Generation && r.Covers(s.First) && r.Covers(s.Last) {
			names = append(names, s.Name())
		}
	}
	for _, name := range l.Ignored {
		n, _ := ParseIgnoredName(name)
		if n.Generation < r.Generation && r.Covers(n.First) && r.Covers(n.Last) {
			names = append(names, name)
		}
	}
	return names
}
