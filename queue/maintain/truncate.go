package maintain

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"

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
	From, To queue.Address
	Entries  int64             // taken back, in the segments that can be read
	Missing  []queue.SegmentID // segments that were removed before; their entries are not counted
	// Rewrite is the path of the file that replaces the segments from that of From on.
	// Empty: it had been written before.
	Rewrite string
	Removed []string       // names of the removed files
	End     queue.Position // of the queue afterwards; zero in a dry run
}

// ErrCompacted is the error of Truncate if a compaction has dropped versions of documents
// that are superseded by entries to be truncated.
var ErrCompacted = errors.New("queue: older versions were dropped by a compaction")

// Truncate removes all entries from an address on. The cursor becomes that of the last
// block that is kept as a whole and has one. The numbers of the removed segments are not reused.
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
func Truncate(ctx context.Context, dir string, from queue.Address, opts *TruncateOptions) (TruncateReport, error) {
	t := truncation{dir: dir, from: from}
	if opts != nil {
		t.options = *opts
	}
	setDefaults(&t.options.FS, &t.options.Logger, &t.options.Now)
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
	from    queue.Address // the first address to be truncated
	report  TruncateReport

	reader  *queue.Reader
	listing segment.Listing
	head    queue.Head // zero: missing or damaged
	highest queue.SegmentID

	run  segment.Run   // the segments that the rewrite replaces
	kept *segment.File // of the run, with entries before from; nil: there is none
	// limit is the end of kept's frames, in an open segment of the committed ones.
	limit  int64
	cursor []byte        // of the last block that is kept as a whole
	inside queue.Address // after the relocated block that from is inside of; zero: none
	// previous is the file of the segment before the run; nil: there is none, or kept has
	// its digest.
	previous *segment.File
}

func (t *truncation) truncate(ctx context.Context) (err error) {
	if t.reader, err = queue.OpenReader(t.dir, &queue.ReaderOptions{FS: t.options.FS}); err != nil {
		return err
	}
	defer func() { _ = t.reader.Close() }() // it only reads
	if !t.options.DryRun {
		if err := clearUp(t.options.FS, t.dir); err != nil {
			return err
		}
	}
	t.head, err = queue.ReadHead(t.options.FS, t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, queue.ErrCorrupt) {
		return err
	}
	if t.listing, err = segment.List(t.options.FS, t.dir); err != nil {
		return err
	}
	t.highest = max(t.listing.Last(), t.head.Highest)
	switch {
	case t.highest == 0:
		return errors.New("there are no segments")
	case t.from.Segment == 0 || t.from.Segment-1 > t.highest:
		return errors.Newf("there is no segment %d, the highest is %d", t.from.Segment, t.highest)
	case t.highest == math.MaxUint32:
		return queue.ErrFull
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
	if err == nil && run == (segment.Run{}) {
		run, err = t.run, t.rewrite(ctx)
	}
	if err != nil {
		return err
	}
	return t.finish(run)
}

// done returns the rewrite that truncated the same entries before a crash; zero: there is
// none.
func (t *truncation) done() (segment.Run, error) {
	s, err := t.open(t.from.Segment)
	if s == nil || segment.IsContent(err) {
		return segment.Run{}, nil
	}
	if err != nil {
		return segment.Run{}, err
	}
	defer s.Close()
	if t.report.Entries > 0 || s.Header.Rewrites.Last != t.highest || s.Relocations == nil {
		return segment.Run{}, nil
	}
	for _, r := range s.Relocations.Truncated {
		if r.To.Segment == t.highest+1 && (r.From.Compare(t.from) <= 0 || r.From == t.inside) {
			return s.Header.Rewrites, nil
		}
	}
	return segment.Run{}, nil
}

// find finds the segments to be replaced, and opens the file with the last entries to be
// kept.
func (t *truncation) find() error {
	t.run = segment.Run{First: t.from.Segment, Last: t.highest}
	s, err := t.open(t.from.Segment)
	if err != nil && (t.from.Block > 0 || !segment.IsContent(err)) {
		return err
	}
	switch {
	case s != nil && (queue.Address{Segment: s.Header.Segment}).Compare(t.from) < 0:
		t.kept = s
	case s == nil && t.from.Block > 0 && t.from.Segment <= t.highest:
		return errors.Newf("segment %d is missing; restore it, or truncate all of it", t.from.Segment)
	default:
		if s != nil {
			s.Close()
		}
		if err := t.findPrevious(); err != nil {
			return err
		}
	}
	if t.kept != nil {
		t.run.First, t.limit = t.kept.Header.Segment, t.kept.Limit()
		if t.kept.Footer == nil {
			w, err := t.kept.LastMark()
			if err != nil {
				return err
			}
			if t.limit = w.Marked.End; t.from.Segment > t.kept.Number { // readers may have read more
				t.from = queue.Address{Segment: t.kept.Number, Block: uint32(t.limit)}
			}
		}
	}
	if t.run, err = segment.NewRun(t.run.First, t.run.Last, t.listing.HighestGeneration(t.run)); err != nil {
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
	case s.Footer == nil:
		t.kept = s
	default:
		t.previous = s
	}
	return nil
}

// verify checks that the kept entries belong to the history in the head.
func (t *truncation) verify() error {
	last := t.run.First - 1 // of the segments with entries to be kept
	if t.kept != nil {
		last = max(t.kept.Header.Segment, t.kept.Header.Rewrites.Last)
	}
	switch {
	case t.kept != nil && t.kept.Footer == nil && t.head.Sealed >= last:
		return &queue.IncompleteError{Dir: t.dir, Keep: fmt.Sprint(last - 1), Reason: t.kept.Path + " was sealed and is open"}
	case t.head.Sealed > last:
		return nil
	}
	return t.head.VerifySealed(t.options.FS, t.dir)
}

// open opens the file of a segment, or returns nil.
func (t *truncation) open(n queue.SegmentID) (*segment.File, error) {
	s, err := t.listing.OpenWhole(t.options.FS, t.dir, n)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return s, err
}

func (t *truncation) close() {
	for _, s := range []*segment.File{t.kept, t.previous} {
		if s != nil {
			s.Close()
		}
	}
}

// eachKept calls fn for each block of kept, with its original address, the number of its entries
// that are kept, and whether that is the whole original block.
func (t *truncation) eachKept(fn func(b *segment.Block, at queue.Address, offset int64, keep int, whole bool) error) error {
	if t.kept == nil {
		return nil
	}
	var b segment.Block
	for w := t.kept.NewWalk(); w.Next < t.limit; {
		offset := w.Next
		kind, err := w.Step(t.kept, &b)
		if err != nil {
			return err
		}
		if kind != segment.FrameBlock {
			continue
		}
		at, _ := b.Origin(queue.Address{Segment: t.kept.Number, Block: uint32(offset)})
		keep := sort.Search(b.Count, func(i int) bool {
			at.Index = b.Index(i)
			return at.Compare(t.from) >= 0
		})
		at.Index = 0
		// If from is inside of a relocated block, the rewrite may have dropped the entries after
		// the kept ones.
		inside := b.RelocatedBlock && at.Segment == t.from.Segment && at.Block == t.from.Block
		if err := fn(&b, at, offset, keep, keep == b.Count && !inside); err != nil {
			return err
		}
	}
	return nil
}

// survey counts the entries to be truncated and finds the cursor. It moves from past the
// last block that is kept as a whole: then from is the position of readers that have read
// exactly the kept entries.
func (t *truncation) survey() error {
	kept, all := int64(0), true
	err := t.eachKept(func(b *segment.Block, at queue.Address, _ int64, keep int, whole bool) error {
		kept += int64(keep)
		_, end := b.Origin(at)
		after := queue.Address{Segment: at.Segment, Block: end}
		switch {
		case !whole:
			all = false
			if b.RelocatedBlock && at.Segment == t.from.Segment && at.Block == t.from.Block {
				t.inside = after
			}
			return nil
		case at.Segment == t.from.Segment && after.Compare(t.from) > 0:
			t.from = after
		}
		if cursor := b.Cursor(); len(cursor) > 0 || !b.RelocatedBlock {
			t.cursor = slices.Clone(cursor)
		}
		return nil
	})
	if all && t.kept != nil && t.kept.Relocations != nil { // also of blocks that the rewrite has dropped
		end := queue.Address{Segment: t.kept.Header.Rewrites.Last, Block: t.kept.Relocations.Last().End}
		if cursor := t.kept.Relocations.Cursor; len(cursor) > 0 && t.from.Compare(end) >= 0 {
			t.cursor = cursor
		}
	}
	if err != nil {
		return err
	}
	infos, err := t.reader.Segments()
	if err != nil {
		return err
	}
	for _, info := range infos {
		if info.ID >= t.run.First {
			t.report.Entries += info.Entries
		}
	}
	t.report.Entries -= kept
	for n := t.run.First; n <= t.highest; n++ {
		if there := t.listing.Sealed[n] || t.listing.Open[n] || t.listing.Rewritten(n); !there {
			t.report.Missing = append(t.report.Missing, n)
		}
	}
	t.report.From, t.report.To = t.from, queue.Address{Segment: t.highest + 1}
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
	out := &segment.Rewrite{Fs: t.options.FS, Dir: t.dir}
	if t.options.DryRun {
		err = out.Begin(header, dictionary)
	} else {
		out, err = segment.CreateRewrite(t.options.FS, t.dir, header, dictionary)
	}
	if err != nil {
		return err
	}
	if err := t.copy(ctx, out); err != nil {
		return out.Abandon(err)
	}
	rows := out.Table.Rows
	out.Table = t.table(&out.Header)
	out.Table.Rows, out.Table.Cursor = rows, cursor
	if err := out.Finish(); err != nil {
		return err
	}
	t.report.Rewrite = out.Path()
	if !t.options.DryRun {
		t.options.Logger.Info("entries taken back", "path", out.Path(), "entries", t.report.Entries, "from", t.from.String())
	}
	return nil
}

// checkCompacted returns ErrCompacted if a kept rewrite has dropped entries because of
// later ones that may be truncated.
func (t *truncation) checkCompacted() error {
	if t.options.LoseCompacted {
		return nil
	}
	for _, run := range t.listing.Rewrites {
		if run.First > t.from.Segment || run.First == t.from.Segment && t.kept == nil || t.listing.Covering(run.First)[0] != run {
			continue
		}
		s, err := segment.OpenRewrite(t.options.FS, t.dir, run)
		if err != nil {
			return err
		}
		settled := s.Relocations.Settled
		s.Close()
		if settled.Compare(t.from) > 0 {
			return fmt.Errorf("%w: %s was written when the queue ended at %s: "+
				"the older versions of documents with a truncated newer version may be missing. "+
				"Allow the loss with --lose-compacted, and append these documents again afterwards", ErrCompacted, run.Path(t.dir), settled)
		}
	}
	return nil
}

// header returns the header of the rewrite, and its dictionary.
func (t *truncation) header() (header segment.Header, dictionary []byte, err error) {
	switch {
	case t.kept != nil:
		header = t.kept.Header
		dictionary, err = t.kept.Dictionary()
	case t.previous != nil:
		header.Queue, header.Previous = t.previous.Header.Queue, t.previous.Digest()
	case t.head.Highest > 0:
		header.Queue = t.head.Queue
	default:
		var s *segment.File
		if s, err = t.listing.OpenWhole(t.options.FS, t.dir, t.listing.Places()[0]); err == nil {
			header.Queue = s.Header.Queue
			s.Close()
		}
	}
	header.Segment, header.Rewrites, header.Created = t.run.First, t.run, t.options.Now().UnixMilli()
	return header, dictionary, err
}

// table returns the relocations of the rewrite with the header, without rows and cursor.
func (t *truncation) table(header *segment.Header) segment.Relocations {
	end := queue.Address{Segment: t.highest + 1}
	table := segment.Relocations{Originals: make([]segment.Original, t.run.Last-t.run.First+1)}
	if t.kept != nil && t.kept.Footer != nil {
		table.Originals[0].Digest = t.kept.DigestOf(t.run.First)
	}
	if t.kept != nil && t.kept.Relocations != nil {
		copy(table.Originals, t.kept.Relocations.Originals)
		table.Settled = t.kept.Relocations.Settled
		table.Lost = before(t.kept.Relocations.Lost, t.from)
		table.Truncated = before(t.kept.Relocations.Truncated, t.from)
	}
	// The segment after the run must not continue the last truncated segment, which
	// readers may have read.
	var cut [segment.LostAddressBytes]byte
	segment.PutAddress(cut[:], t.from)
	*table.Last() = segment.Original{Digest: sha256.Sum256(append(header.Encode(), cut[:]...))}
	table.Truncated = append(table.Truncated, segment.AddressRange{From: t.from, To: end})
	return table
}

// before returns the part of the ranges before an address.
func before(ranges []segment.AddressRange, end queue.Address) (left []segment.AddressRange) {
	for _, r := range ranges {
		if r.From.Compare(end) >= 0 {
			continue
		}
		if r.To.Compare(end) > 0 {
			r.To = end
		}
		left = append(left, r)
	}
	return left
}

// copy writes the kept entries. It verifies their documents.
func (t *truncation) copy(ctx context.Context, out *segment.Rewrite) error {
	var kept segment.RelocatedBlock
	data := segment.GetScratch()
	defer data.Release()
	return t.eachKept(func(b *segment.Block, at queue.Address, offset int64, keep int, whole bool) error {
		documents := data.Sized(int(b.DataBytes))
		if err := t.kept.ReadAt(documents, offset+b.DataOffset()); err != nil {
			return err
		}
		_, end := b.Origin(at)
		var cursor []byte
		if whole {
			cursor = b.Cursor()
		}
		kept.Reset(at, end, b.Chain(), b.Appended, cursor)
		for i := range keep {
			e, place := b.Entry(i), at
			place.Index = b.Index(i)
			id, document := b.ID(e), documents[e.Start:e.End]
			if err := segment.VerifyDocument(place, &e, id, document); err != nil {
				return t.kept.DamagedEntry(b, &e, offset, id, err)
			}
			kept.Add(place.Index, id, document, e.RawAndFlags, e.CRC, segment.ExpirySeconds(b.Expires(i)))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return out.Write(&kept)
	})
}

// lastCursor returns the cursor of the last block that is kept as a whole, which may be
// in a segment before the run.
func (t *truncation) lastCursor() ([]byte, error) {
	if t.cursor != nil {
		return t.cursor, nil
	}
	for _, n := range slices.Backward(t.listing.Places()) {
		if n >= t.run.First {
			continue
		}
		s, err := t.listing.OpenWhole(t.options.FS, t.dir, n)
		if err != nil {
			return nil, err
		}
		var table segment.Relocations
		if s.Footer != nil {
			err = s.ChainInto(&table)
		}
		s.Close()
		if err != nil || s.Footer == nil || s.Footer.Blocks > 0 || len(table.Cursor) > 0 {
			return table.Cursor, err
		}
	}
	return nil, nil
}

// finish writes the head and removes the files that the rewrite has replaced, including
// those left by a crash.
func (t *truncation) finish(run segment.Run) error {
	names := t.listing.ReplacedBy(run)
	for _, n := range t.listing.Numbers {
		if run.Covers(n) && t.listing.Open[n] {
			names = append(names, filepath.Base(segment.Path("", n, segment.OpenSuffix)))
		}
	}
	slices.Sort(names)
	t.report.Removed = names
	if t.options.DryRun {
		return nil
	}
	head, err := queue.RebuildHead(t.options.FS, t.dir, t.options.Now)
	if err != nil {
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
