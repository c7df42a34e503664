package queue

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// TruncateOptions are the options of Truncate. Nil and zero values are the defaults.
type TruncateOptions struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// DryRun reports everything and changes nothing. It needs no lock.
	DryRun bool
	// LoseCompacted takes entries back although a compaction has dropped older
	// versions of their documents, which then do not come back.
	LoseCompacted bool
	// Logger receives each rewrite and removal. The default discards them.
	Logger *slog.Logger
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// TruncateReport is the result of Truncate.
type TruncateReport struct {
	// From and To: the entries at From and before To are taken back. The next
	// entry that is appended has the segment To.Segment.
	From, To Address
	Entries  int64       // taken back, in the segments that can be read
	Missing  []SegmentID // segments that were removed before; their entries are not counted
	// Rewrite is the path of the file that replaces the segments from the one of
	// From on. Empty: it was written before.
	Rewrite string
	Removed []string // names of the files that were removed
	End     Position // of the queue afterwards; zero in a dry run
}

// ErrCompacted is the error of Truncate if a compaction has dropped versions of documents
// that entries to be taken back had replaced.
var ErrCompacted = errors.New("queue: older versions were dropped by a compaction")

// Truncate takes back all entries from an address on: the queue ends before it, and
// the cursor is the one of the last block that is kept as a whole. The numbers of the
// segments that are taken back are not used again.
//
// A rewrite replaces the segments from the one with the address to the highest that
// there ever was, and holds the entries before the address. Readers that have read
// further get a *TruncatedError, others continue. The segments are removed when the
// rewrite and the head are durable. After a crash the queue is as it was before, or
// Truncate with the same address completes its work.
//
// It also works if the newest segments were removed or replaced by older ones, which
// OpenWriter refuses. No Writer may be open: ErrLocked. ErrCompacted: see
// TruncateOptions.LoseCompacted. *CorruptionError: the entries to be kept of the
// segment with the address are damaged; Repair comes first.
func Truncate(ctx context.Context, dir string, from Address, opts *TruncateOptions) (TruncateReport, error) {
	t := truncation{dir: dir, from: from}
	if opts != nil {
		t.options = *opts
	}
	t.complete()
	if !t.options.DryRun {
		unlock, err := lockSource(t.options.FS, dir, t.options.Now())
		if err != nil {
			return t.report, err
		}
		defer unlock()
	}
	err := t.truncate(ctx)
	return t.report, errors.Wrapf(err, "queue: truncating %s to before %s", dir, from)
}

type truncation struct {
	dir     string
	options TruncateOptions
	from    Address // the first address to be taken back
	report  TruncateReport

	reader  *Reader
	listing listing
	head    Head // zero: there is none, or it is damaged
	highest SegmentID

	run  rewriteRun   // the segments that the rewrite replaces
	kept *segmentFile // of the run, with entries before from; nil: there is none
	// limit is where the frames of kept end, of an open segment those committed.
	limit  int64
	cursor []byte  // of the last block that is kept as a whole
	inside Address // behind the relocated block that from is inside of; zero: none
	// previous is the file of the segment before the run; nil: kept knows its digest,
	// or there is none.
	previous *segmentFile
}

func (t *truncation) complete() {
	o := &t.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

func (t *truncation) truncate(ctx context.Context) (err error) {
	if t.reader, err = OpenReader(t.dir, &ReaderOptions{FS: t.options.FS}); err != nil {
		return err
	}
	defer func() { _ = t.reader.Close() }() // it only reads
	if !t.options.DryRun {
		if err := clearUp(t.options.FS, t.dir); err != nil {
			return err
		}
	}
	t.head, err = ReadHead(t.options.FS, t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
		return err
	}
	if t.listing, err = t.reader.list(); err != nil {
		return err
	}
	t.highest = max(t.listing.last(), t.head.Highest)
	switch {
	case t.highest == 0:
		return errors.New("there are no segments")
	case t.from.Segment == 0 || t.from.Segment-1 > t.highest:
		return errors.Newf("there is no segment %d, the highest is %d", t.from.Segment, t.highest)
	case t.highest == math.MaxUint32:
		return ErrFull
	}
	if t.from.Segment > t.highest {
		t.report = TruncateReport{From: t.from, To: t.from, End: t.reader.End()}
		return nil
	}
	defer t.close()
	if err := t.find(); err != nil {
		return err
	}
	if err := t.survey(); err != nil {
		return err
	}
	run, err := t.done()
	if err == nil && run == (rewriteRun{}) {
		run, err = t.run, t.rewrite(ctx)
	}
	if err != nil {
		return err
	}
	return t.finish(run)
}

// done is the rewrite that took the same entries back before a crash; zero: there is
// none.
func (t *truncation) done() (rewriteRun, error) {
	s, err := t.open(t.from.Segment)
	if s == nil || isContent(err) {
		return rewriteRun{}, nil
	}
	if err != nil {
		return rewriteRun{}, err
	}
	defer s.file.Close()
	if t.report.Entries > 0 || s.header.rewrites.last != t.highest || s.relocations == nil {
		return rewriteRun{}, nil
	}
	for _, r := range s.relocations.truncated {
		if r.to.Segment == t.highest+1 && (r.from.Compare(t.from) <= 0 || r.from == t.inside) {
			return s.header.rewrites, nil
		}
	}
	return rewriteRun{}, nil
}

// find finds the segments to be replaced, and opens the file with the last entries
// to be kept.
func (t *truncation) find() error {
	t.run = rewriteRun{first: t.from.Segment, last: t.highest}
	s, err := t.open(t.from.Segment)
	if err != nil && (t.from.Block > 0 || !isContent(err)) {
		return err
	}
	switch {
	case s != nil && (Address{Segment: s.header.segment}).Compare(t.from) < 0:
		t.kept = s
	case s == nil && t.from.Block > 0 && t.from.Segment <= t.highest:
		return errors.Newf("segment %d is missing; put it back, or take back all of it", t.from.Segment)
	default:
		if s != nil {
			s.file.Close()
		}
		if err := t.findPrevious(); err != nil {
			return err
		}
	}
	if t.kept != nil {
		t.run.first, t.limit = t.kept.header.segment, t.kept.limit()
		if t.kept.footer == nil {
			w, err := t.kept.lastMark()
			if err != nil {
				return err
			}
			if t.limit = w.marked.end; t.from.Segment > t.kept.number { // readers may have read more of it
				t.from = Address{Segment: t.kept.number, Block: uint32(t.limit)}
			}
		}
	}
	t.run.generation = t.listing.highestGeneration(t.run) + 1
	if t.run.generation > maxGeneration {
		return errors.Newf("segments %d to %d were rewritten %d times, and cannot be again", t.run.first, t.run.last, maxGeneration)
	}
	return t.verify()
}

// findPrevious opens the segment before the run. All of its entries are kept.
// If it is not sealed although there were later ones, it is an older copy: then it is
// replaced, too.
func (t *truncation) findPrevious() error {
	if t.from.Segment == 1 {
		return nil
	}
	s, err := t.open(t.from.Segment - 1)
	switch {
	case err != nil:
		return err
	case s == nil:
		return errors.Newf("segment %d is missing, too; put it back, or take back its entries with a lower segment", t.from.Segment-1)
	case s.footer == nil:
		t.kept = s
	default:
		t.previous = s
	}
	return nil
}

// verify checks that the entries to be kept belong to the history that the head
// states.
func (t *truncation) verify() error {
	last := t.run.first - 1 // of the segments with entries to be kept
	if t.kept != nil {
		last = max(t.kept.header.segment, t.kept.header.rewrites.last)
	}
	switch {
	case t.kept != nil && t.kept.footer == nil && t.head.Sealed >= last:
		return incomplete(t.dir, last-1, "%s is not sealed, and it was", t.kept.path)
	case t.head.Sealed > last:
		return nil
	}
	return verifySealed(t.options.FS, t.dir, &t.listing, &t.head)
}

// open opens the file that holds a segment, nil if there is none.
func (t *truncation) open(n SegmentID) (*segmentFile, error) {
	s, err := t.reader.openWhole(&t.listing, n)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return s, err
}

func (t *truncation) close() {
	for _, s := range []*segmentFile{t.kept, t.previous} {
		if s != nil {
			s.file.Close()
		}
	}
}

// eachKept calls fn for each block of kept, with its original address and the number
// of its entries that are kept.
func (t *truncation) eachKept(fn func(b *block, at Address, offset int64, keep int) error) error {
	if t.kept == nil {
		return nil
	}
	var b block
	for w := t.kept.newWalk(); w.next < t.limit; {
		offset := w.next
		kind, err := w.step(t.kept, &b)
		if err != nil {
			return err
		}
		if kind != frameBlock {
			continue
		}
		at, _ := b.origin(Address{Segment: t.kept.number, Block: uint32(offset)})
		keep := sort.Search(b.count, func(i int) bool {
			at.Index = b.index(i)
			return at.Compare(t.from) >= 0
		})
		at.Index = 0
		if err := fn(&b, at, offset, keep); err != nil {
			return err
		}
	}
	return nil
}

// survey counts the entries to be taken back, and finds the cursor. It moves from
// behind the block before it: so it is a position that readers have if they have read
// the entries before it and no others.
func (t *truncation) survey() error {
	kept := int64(0)
	err := t.eachKept(func(b *block, at Address, _ int64, keep int) error {
		kept += int64(keep)
		_, end := b.origin(at)
		behind := Address{Segment: at.Segment, Block: end}
		if at.Segment == t.from.Segment && at.Block == t.from.Block && b.relocated {
			t.inside = behind // entries behind those that are left may have been dropped
			return nil
		}
		if keep < b.count {
			return nil
		}
		if at.Segment == t.from.Segment && behind.Compare(t.from) > 0 {
			t.from = behind
		}
		if !b.relocated {
			t.cursor = slices.Clone(b.cursor())
		}
		return nil
	})
	if err != nil {
		return err
	}
	infos, err := t.reader.Segments()
	if err != nil {
		return err
	}
	for _, info := range infos {
		if info.ID >= t.run.first {
			t.report.Entries += info.Entries
		}
	}
	t.report.Entries -= kept
	for n := t.run.first; n <= t.highest; n++ {
		if there := t.listing.sealed[n] || t.listing.open[n] || t.listing.rewritten(n); !there {
			t.report.Missing = append(t.report.Missing, n)
		}
	}
	t.report.From, t.report.To = t.from, Address{Segment: t.highest + 1}
	return nil
}
