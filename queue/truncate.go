package queue

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"docstore/internal/vfs"

	"github.com/cockroachdb/errors"
)

// TruncateOptions are the options of Truncate. Nil and zero values are the defaults.
type TruncateOptions struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// DryRun reports everything and changes nothing. It needs no lock.
	DryRun bool
	// LoseCompacted truncates even if a compaction has dropped older versions of the
	// documents, which then do not reappear.
	LoseCompacted bool
	// Logger receives each rewrite and removal. The default discards them.
	Logger *slog.Logger
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// TruncateReport is the result of Truncate.
type TruncateReport struct {
	// From and To: the entries at From and before To are truncated. The next appended
	// entry has the segment To.Segment.
	From, To Address
	Entries  int64       // taken back, in the segments that can be read
	Missing  []SegmentID // segments that were removed before; their entries are not counted
	// Rewrite is the path of the file that replaces the segments from that of From on.
	// Empty: it had been written before.
	Rewrite string
	Removed []string // names of the removed files
	End     Position // of the queue afterwards; zero in a dry run
}

// ErrCompacted is the error of Truncate if a compaction has dropped versions of documents
// that are superseded by entries to be truncated.
var ErrCompacted = errors.New("queue: older versions were dropped by a compaction")

// Truncate removes all entries from an address on. The cursor becomes that of the last
// block that is kept as a whole. The numbers of the removed segments are not reused.
//
// A rewrite replaces the segments from that of the address to the highest one ever used,
// and contains the entries before the address. Readers that have read further get a
// *TruncatedError, others continue. The segments are removed after the rewrite and the
// head are durable. After a crash either nothing has changed, or another Truncate with
// the same address completes the work.
//
// It also works if the newest segments were removed or replaced by older copies, which
// OpenWriter refuses. No Writer may be open: ErrLocked. ErrCompacted: see
// TruncateOptions.LoseCompacted. *CorruptionError: entries to be kept in the segment with
// the address are damaged; run Repair first.
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
	from    Address // the first address to be truncated
	report  TruncateReport

	reader  *Reader
	listing listing
	head    Head // zero: missing or damaged
	highest SegmentID

	run  rewriteRun   // the segments that the rewrite replaces
	kept *segmentFile // of the run, with entries before from; nil: there is none
	// limit is the end of kept's frames, in an open segment of the committed ones.
	limit  int64
	cursor []byte  // of the last block that is kept as a whole
	inside Address // after the relocated block that from is inside of; zero: none
	// previous is the file of the segment before the run; nil: there is none, or kept has
	// its digest.
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

// done returns the rewrite that truncated the same entries before a crash; zero: there is
// none.
func (t *truncation) done() (rewriteRun, error) {
	s, err := t.open(t.from.Segment)
	if s == nil || isContent(err) {
		return rewriteRun{}, nil
	}
	if err != nil {
		return rewriteRun{}, err
	}
	defer s.close()
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

// find finds the segments to be replaced, and opens the file with the last entries to be
// kept.
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
		return errors.Newf("segment %d is missing; restore it, or truncate all of it", t.from.Segment)
	default:
		if s != nil {
			s.close()
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
			if t.limit = w.marked.end; t.from.Segment > t.kept.number { // readers may have read more
				t.from = Address{Segment: t.kept.number, Block: uint32(t.limit)}
			}
		}
	}
	if t.run, err = newRun(t.run.first, t.run.last, t.listing.highestGeneration(t.run)); err != nil {
		return err
	}
	return t.verify()
}

// findPrevious opens the segment before the run, all of whose entries are kept. If it is
// not sealed although later ones existed, it is an older copy and is replaced, too.
func (t *truncation) findPrevious() error {
	if t.from.Segment == 1 {
		return nil
	}
	s, err := t.open(t.from.Segment - 1)
	switch {
	case err != nil:
		return err
	case s == nil:
		return errors.Newf("segment %d is missing, too; restore it, or truncate from a lower segment", t.from.Segment-1)
	case s.footer == nil:
		t.kept = s
	default:
		t.previous = s
	}
	return nil
}

// verify checks that the kept entries belong to the history in the head.
func (t *truncation) verify() error {
	last := t.run.first - 1 // of the segments with entries to be kept
	if t.kept != nil {
		last = max(t.kept.header.segment, t.kept.header.rewrites.last)
	}
	switch {
	case t.kept != nil && t.kept.footer == nil && t.head.Sealed >= last:
		return incomplete(t.dir, last-1, "%s was sealed and is open", t.kept.path)
	case t.head.Sealed > last:
		return nil
	}
	return verifySealed(t.options.FS, t.dir, &t.listing, &t.head)
}

// open opens the file of a segment, or returns nil.
func (t *truncation) open(n SegmentID) (*segmentFile, error) {
	s, err := t.listing.openWhole(t.options.FS, t.dir, n)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return s, err
}

func (t *truncation) close() {
	for _, s := range []*segmentFile{t.kept, t.previous} {
		if s != nil {
			s.close()
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

// survey counts the entries to be truncated and finds the cursor. It moves from past the
// last block that is kept as a whole: then from is the position of readers that have read
// exactly the kept entries.
func (t *truncation) survey() error {
	kept := int64(0)
	err := t.eachKept(func(b *block, at Address, _ int64, keep int) error {
		kept += int64(keep)
		_, end := b.origin(at)
		after := Address{Segment: at.Segment, Block: end}
		if at.Segment == t.from.Segment && at.Block == t.from.Block && b.relocated {
			t.inside = after // the rewrite may have dropped entries after the kept ones
			return nil
		}
		if keep < b.count {
			return nil
		}
		if at.Segment == t.from.Segment && after.Compare(t.from) > 0 {
			t.from = after
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

// rewrite writes the rewrite that replaces the run.
func (t *truncation) rewrite(ctx context.Context) error {
	if err := t.checkCompacted(); err != nil {
		return err
	}
	header, dictionary, err := t.header()
	if err != nil {
		return err
	}
	cursor, err := t.lastCursor()
	if err != nil {
		return err
	}
	out := &rewriteFile{fs: t.options.FS, dir: t.dir}
	if t.options.DryRun {
		err = out.begin(header, dictionary)
	} else {
		out, err = createRewrite(t.options.FS, t.dir, header, dictionary)
	}
	if err != nil {
		return err
	}
	if err := t.copy(ctx, out); err != nil {
		return out.abandon(err)
	}
	rows := out.table.rows
	out.table = t.table(&out.header)
	out.table.rows, out.table.cursor = rows, cursor
	if err := out.finish(); err != nil {
		return err
	}
	t.report.Rewrite = out.path()
	if !t.options.DryRun {
		t.options.Logger.Info("entries taken back", "path", out.path(), "entries", t.report.Entries, "from", t.from.String())
	}
	return nil
}

// checkCompacted returns ErrCompacted if a kept rewrite has dropped entries because of
// later ones that may be truncated.
func (t *truncation) checkCompacted() error {
	if t.options.LoseCompacted {
		return nil
	}
	for _, run := range t.listing.rewrites {
		if run.first > t.from.Segment || run.first == t.from.Segment && t.kept == nil || t.listing.covering(run.first)[0] != run {
			continue
		}
		settled, err := settledOf(t.options.FS, run.path(t.dir), run.first)
		if err != nil {
			return err
		}
		if settled.Next.Compare(t.from) > 0 {
			return &markedError{mark: ErrCompacted, detail: run.path(t.dir) + " was written when the queue ended at " + settled.Next.String() +
				": the older versions of documents with a truncated newer version may be missing. " +
				"Allow the loss with --lose-compacted, and append these documents again afterwards"}
		}
	}
	return nil
}

// header returns the header of the rewrite, and its dictionary.
func (t *truncation) header() (header segmentHeader, dictionary []byte, err error) {
	switch {
	case t.kept != nil:
		header = t.kept.header
		dictionary, err = t.kept.dictionary()
	case t.previous != nil:
		header.queue, header.previous = t.previous.header.queue, t.previous.digest()
	case t.head.Highest > 0:
		header.queue = t.head.Queue
	default:
		var s *segmentFile
		if s, err = t.listing.openWhole(t.options.FS, t.dir, t.listing.places()[0]); err == nil {
			header.queue = s.header.queue
			s.close()
		}
	}
	header.segment, header.rewrites, header.created = t.run.first, t.run, t.options.Now().UnixMilli()
	return header, dictionary, err
}

// table returns the relocations of the rewrite with the header, without rows and cursor.
func (t *truncation) table(header *segmentHeader) relocations {
	end := Address{Segment: t.highest + 1}
	table := relocations{originals: make([]original, t.run.last-t.run.first+1)}
	if t.kept != nil && t.kept.footer != nil {
		table.originals[0].digest = t.kept.digestOf(t.run.first)
	}
	if t.kept != nil && t.kept.relocations != nil {
		copy(table.originals, t.kept.relocations.originals)
		table.settled = t.kept.relocations.settled
		table.lost = before(t.kept.relocations.lost, t.from)
		table.truncated = before(t.kept.relocations.truncated, t.from)
	}
	// The segment after the run must not continue the last truncated segment, which
	// readers may have read.
	var cut [lostAddressBytes]byte
	putAddress(cut[:], t.from)
	*table.last() = original{digest: sha256.Sum256(append(header.encode(), cut[:]...))}
	table.truncated = append(table.truncated, addressRange{from: t.from, to: end})
	return table
}

// before returns the part of the ranges before an address.
func before(ranges []addressRange, end Address) (left []addressRange) {
	for _, r := range ranges {
		if r.from.Compare(end) >= 0 {
			continue
		}
		if r.to.Compare(end) > 0 {
			r.to = end
		}
		left = append(left, r)
	}
	return left
}

// copy writes the kept entries. It verifies their documents.
func (t *truncation) copy(ctx context.Context, out *rewriteFile) error {
	var kept relocated
	data := getScratch()
	defer data.release()
	return t.eachKept(func(b *block, at Address, offset int64, keep int) error {
		documents := data.sized(int(b.dataBytes))
		if err := t.kept.readAt(documents, offset+b.dataOffset()); err != nil {
			return err
		}
		_, end := b.origin(at)
		kept.reset(at, end, b.chain(), b.appended)
		for i := range keep {
			e, place := b.entry(i), at
			place.Index = b.index(i)
			id, document := b.id(e), documents[e.start:e.end]
			if err := verifyDocument(place, &e, id, document); err != nil {
				return t.kept.damagedEntry(b, &e, offset, id, err)
			}
			kept.add(place.Index, id, document, e.rawAndFlags, e.crc, expirySeconds(b.expires(i)))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return out.write(&kept)
	})
}

// lastCursor returns the cursor of the last block that is kept as a whole, which may be
// in a segment before the run.
func (t *truncation) lastCursor() ([]byte, error) {
	if t.cursor != nil {
		return t.cursor, nil
	}
	for _, n := range slices.Backward(t.listing.places()) {
		if n >= t.run.first {
			continue
		}
		s, err := t.listing.openWhole(t.options.FS, t.dir, n)
		if err != nil {
			return nil, err
		}
		var table relocations
		if s.footer != nil {
			err = s.chainInto(&table)
		}
		s.close()
		if err != nil || s.footer == nil || s.footer.blocks > 0 || len(table.cursor) > 0 {
			return table.cursor, err
		}
	}
	return nil, nil
}

// finish writes the head and removes the files that the rewrite has replaced, including
// those left by a crash.
func (t *truncation) finish(run rewriteRun) error {
	names := t.listing.replacedBy(run)
	for _, n := range t.listing.numbers {
		if run.covers(n) && t.listing.open[n] {
			names = append(names, filepath.Base(segmentPath("", n, openSuffix)))
		}
	}
	slices.Sort(names)
	t.report.Removed = names
	if t.options.DryRun {
		return nil
	}
	head, err := headOf(t.options.FS, t.dir, t.options.Now)
	if err != nil {
		return err
	}
	if err := head.save(true); err != nil {
		return err
	}
	t.report.End = head.End
	for _, name := range names {
		if err := t.options.FS.Remove(filepath.Join(t.dir, name)); err != nil {
			return err
		}
		t.options.Logger.Info("truncated file removed", "path", filepath.Join(t.dir, name))
	}
	return errors.Wrap(t.options.FS.SyncDir(t.dir), "making the removals durable")
}
