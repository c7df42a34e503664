package maintain

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

// RepairOptions configure Repair. Nil and zero values are the defaults.
type RepairOptions struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// DryRun reports everything and changes nothing. It needs no lock.
	DryRun bool
	// OnLoss is called for each loss. Its error ends Repair. The ID is valid until it
	// returns.
	OnLoss func(Loss) error
	// Progress is called with the number of bytes read so far and in total.
	Progress func(done, total int64)
	// Logger logs each file. The default discards the messages.
	Logger *slog.Logger
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// RepairedFile is a file that was damaged, or segments that are missing.
type RepairedFile struct {
	Path        string // of a missing segment, its former path
	First, Last queue.SegmentID
	Missing     bool
	// Rewrite is the file that replaces it. Empty: no rewrite is needed, because the
	// files that the damaged one had replaced, or its own replacement, are whole.
	Rewrite string
	Damage  []*queue.CorruptionError // the first 10,000
	// Kept entries are unchanged. The entries of LostDocuments keep their ids, and the
	// documents are unavailable. The contents of LostRanges are unknown.
	Kept, LostDocuments int64
	LostRanges          int
	// UnprovenExpiries is the number of Kept entries whose expiry was read from damaged
	// bytes.
	UnprovenExpiries int64
}

// Repair makes a damaged queue readable at its source. Use it only if no undamaged copy
// of the files exists: everything that Repair cannot verify is lost.
//
// It verifies every byte, and writes the verified entries of each damaged or missing
// segment into a rewrite (see Compact) at their old addresses, so that readers and copies
// continue. The damaged file gets the suffix .damaged, and readers ignore it.
//
// A damaged document keeps its entry: its id is unavailable until it is appended or
// deleted again. A document whose id is damaged is lost, although readers could fetch it
// before: an index knows the id, and Repair does not. If a table is damaged, ids are lost,
// and with them deletes and newer versions: an index that is built from the queue
// afterwards has an older version of such an id, if there is one. An existing index is not
// affected: lost addresses are unavailable.
//
// No Writer may be open: ErrLocked. Repair refuses a copy of a queue, which has no LOCK.
// ErrForked: an undamaged segment belongs to another history.
func Repair(ctx context.Context, dir string, opts *RepairOptions) ([]RepairedFile, error) {
	r := repairer{dir: dir}
	if opts != nil {
		r.options = *opts
	}
	r.complete()
	if !r.options.DryRun {
		unlock, err := lockSource(r.options.FS, dir, r.options.Now())
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	err := r.run(ctx)
	return r.repaired, errors.Wrapf(err, "queue: repairing %s", dir)
}

type repairer struct {
	dir         string
	options     RepairOptions
	listing     segment.Listing
	head        queue.Head // zero: missing or damaged
	done, total int64      // bytes read, and to be read

	places   []*place // files of the segments, in order
	spare    []*place // damaged files whose segments are in other, undamaged files
	queue    [16]byte
	known    []knownDictionary // of other segments; nil: not read yet
	repaired []RepairedFile
}

func (r *repairer) complete() {
	o := &r.options
	setDefaults(&o.FS, &o.Logger, &o.Now)
	if o.OnLoss == nil {
		o.OnLoss = func(Loss) error { return nil }
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
}

// lockSource locks the source of a queue against writers and compactions.
func lockSource(fsys vfs.FS, dir string, now time.Time) (unlock func(), err error) {
	if _, err := fsys.Stat(filepath.Join(dir, segment.LockName)); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Newf("queue: %s has no %s, so it is a copy: run this at the source of the queue; "+
			"to make this directory the source, create an empty %[2]s", dir, segment.LockName)
	}
	writer, err := queue.LockDir(fsys, dir, now)
	if err != nil {
		return nil, err
	}
	compaction, err := segment.Lock(fsys, dir, segment.CompactLockName, now)
	if err != nil {
		return nil, errors.CombineErrors(err, writer.Close())
	}
	return func() {
		_ = compaction.Close()
		_ = writer.Close()
	}, nil
}

func (r *repairer) run(ctx context.Context) error {
	if !r.options.DryRun {
		if err := clearUp(r.options.FS, r.dir); err != nil {
			return err
		}
	}
	var err error
	if r.head, err = queue.ReadHead(r.options.FS, r.dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, queue.ErrCorrupt) {
		return err
	}
	if err := r.survey(ctx); err != nil {
		return err
	}
	if err := r.identify(); err != nil {
		return err
	}
	var previous segment.Digest // of the previous segment
	for i, p := range r.places {
		next := r.previousOf(i + 1)
		if p.header != nil && p.header.Previous != previous || p.digest != nil && next != nil && *p.digest != *next {
			return fmt.Errorf("%w: %s does not follow the previous segment, or the next segment or "+
				"the head file names another segment: they belong to different histories of the queue", queue.ErrForked, p.path)
		}
		if !p.damaged() {
			if p.digest != nil {
				previous = *p.digest
			}
			continue
		}
		var err error
		if previous, err = r.repair(ctx, p, previous, next); err != nil {
			return err
		}
	}
	for _, p := range r.spare {
		if err := r.renameDamaged(p); err != nil {
			return err
		}
		r.repaired = append(r.repaired, p.report())
	}
	return r.saveHead()
}

// saveHead writes the head file again, for the current segments.
func (r *repairer) saveHead() error {
	if r.options.DryRun || len(r.places) == 0 || len(r.repaired) == 0 && r.head.Highest > 0 {
		return nil
	}
	_, err := queue.RebuildHead(r.options.FS, r.dir, r.options.Now)
	return err
}

// identify determines the id of the queue.
func (r *repairer) identify() error {
	named := false
	for _, p := range r.places {
		if p.header == nil {
			continue
		}
		if named && p.header.Queue != r.queue {
			return fmt.Errorf("%w: %s belongs to another queue than the previous segments", queue.ErrForked, p.path)
		}
		r.queue, named = p.header.Queue, true
	}
	for _, p := range r.places {
		if named || p.missing {
			continue
		}
		s, err := r.open(p)
		if err != nil {
			return err
		}
		if named = s.Footer != nil; named {
			r.queue = s.Footer.Queue
		} else {
			r.queue = s.Header.Queue // not verified yet
		}
		s.Close()
	}
	return nil
}

// previousOf returns the digest of the segment before a place, from the place's header or
// the head file; nil: unknown.
func (r *repairer) previousOf(i int) *segment.Digest {
	if i == len(r.places) {
		if last := r.places[i-1]; last.run.Last != r.head.Sealed || last.truncated {
			return nil
		}
		d := segment.Digest(r.head.Digest)
		return &d
	}
	if r.places[i].header == nil {
		return nil
	}
	return &r.places[i].header.Previous
}

// repair writes the rewrite of a damaged or missing place. It returns the digest that the
// header of the next segment must have.
func (r *repairer) repair(ctx context.Context, p *place, previous segment.Digest, next *segment.Digest) (segment.Digest, error) {
	report := p.report()
	run, err := segment.NewRun(p.run.First, p.run.Last, r.listing.HighestGeneration(p.run))
	if err != nil {
		return previous, err
	}
	header := segment.Header{
		Queue: r.queue, Segment: p.run.First, Created: r.options.Now().UnixMilli(), Previous: previous, Rewrites: run,
	}
	v := &salvage{loss: r.options.OnLoss}
	var s *segment.File
	if !p.missing {
		var err error
		if s, err = r.open(p); err != nil {
			return previous, err
		}
		defer s.Close()
		v.s = s
	}
	dictionary, err := r.prepare(v, p, &header)
	if err != nil {
		return previous, err
	}
	out := &segment.Rewrite{Fs: r.options.FS, Dir: r.dir}
	if r.options.DryRun {
		err = out.Begin(header, dictionary)
	} else {
		out, err = segment.CreateRewrite(r.options.FS, r.dir, header, dictionary)
	}
	if err != nil {
		return previous, err
	}
	v.write, v.progress = out.Write, r.progress
	if err := r.fill(ctx, v, p, next, &out.Table); err != nil {
		return previous, out.Abandon(err)
	}
	if err := out.Finish(); err != nil {
		return previous, err
	}
	if err := r.renameDamaged(p); err != nil {
		return previous, err
	}
	report.Rewrite = out.Path()
	report.Kept = int64(out.Totals.Entries) - v.lostIDs
	report.LostDocuments, report.LostRanges, report.UnprovenExpiries = v.lostIDs, len(v.lost), v.unproven
	r.repaired = append(r.repaired, report)
	what := "segments repaired"
	if r.options.DryRun {
		what = "segments can be repaired"
	}
	r.options.Logger.Info(what, "path", p.path, "rewrite", report.Rewrite, "kept", report.Kept,
		"lost_documents", report.LostDocuments, "lost_ranges", report.LostRanges)
	return out.Table.Last().Digest, nil
}

// prepare finds the dictionary and the start of the frames, and completes the header of
// the rewrite.
func (r *repairer) prepare(v *salvage, p *place, header *segment.Header) (dictionary []byte, err error) {
	v.done = queue.Address{Segment: p.run.First}
	if p.missing {
		v.damaged = true
		return nil, nil
	}
	var whole bool
	if p.header != nil {
		v.s.Header = *p.header
		dictionary, whole, err = r.recoverDictionary(v.s)
	} else {
		dictionary, whole, err = r.recoverHeader(v.s, p.headerRun(), header.Previous)
		v.damaged = !whole
	}
	if err != nil {
		return nil, err
	}
	v.offset = v.s.Header.FirstFrame()
	if v.good = v.offset; whole && p.run.Generation == 0 {
		v.done.Block = uint32(v.offset)
	}
	v.chain, v.appended = v.s.Header.CRC, v.s.Header.Created
	if v.opaque = !whole; v.opaque {
		return nil, nil
	}
	header.Codec, header.Sampled, header.Erases = v.s.Header.Codec, v.s.Header.Sampled, v.s.Header.Erases
	return dictionary, nil
}

// fill runs the salvage and completes the relocations of the rewrite.
func (r *repairer) fill(ctx context.Context, v *salvage, p *place, next *segment.Digest, table *segment.Relocations) error {
	after := queue.Address{Segment: p.run.Last + 1}
	table.Settled = after
	footer := segment.Footer{Queue: r.queue, Segment: p.run.Last}
	if !p.missing {
		if err := v.run(ctx); err != nil {
			return err
		}
		if err := v.finish(p, next, &footer); err != nil {
			return err
		}
		table.Cursor = v.cursor
	}
	if err := v.account(after); err != nil {
		return err
	}
	// Of missing segments only the digest of the last one may be known.
	table.Originals, table.Lost = make([]segment.Original, p.run.Last-p.run.First+1), v.lost
	table.Last().Digest = footer.Digest()
	if p.run.Generation > 0 {
		r.copyTable(v, table)
	}
	if next != nil {
		table.Last().Digest = *next
	}
	return nil
}

// copyTable copies the relocations of a damaged rewrite. If they are damaged, it is
// unknown when the dropped entries were superseded, except that it was before now.
func (r *repairer) copyTable(v *salvage, table *segment.Relocations) {
	before := v.table
	if v.s.Footer != nil {
		before = v.s.Relocations
	}
	if before == nil {
		table.Settled = queue.Address{Segment: r.listing.Last(), Block: math.MaxUint32}
		return
	}
	table.Settled, table.Cursor, table.Truncated = before.Settled, before.Cursor, before.Truncated
	copy(table.Originals, before.Originals)
	table.Lost = append(table.Lost, before.Lost...)
	slices.SortFunc(table.Lost, func(a, b segment.AddressRange) int {
		return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To))
	})
}

// finish decides whether entries may have followed the last whole frame, and completes
// the footer that the segment has or would have had.
func (v *salvage) finish(p *place, next *segment.Digest, footer *segment.Footer) error {
	original := p.run.Generation == 0
	footer.Offset, footer.Chain, footer.Totals = uint32(v.good), v.chain, v.totals
	switch found := cmp.Or(v.s.Footer, v.footer); {
	case found != nil:
		*footer = *found
		if original {
			return v.account(queue.Address{Segment: v.s.Number, Block: found.Offset})
		}
	case p.open:
		v.damaged = false // uncommitted bytes are no loss
	case !original:
		v.damaged = v.damaged || v.table == nil
	case next != nil && footer.Digest() == *next || v.footerIsDamaged():
		v.damaged = false
	default:
		v.damaged = true
	}
	return nil
}

// footerIsDamaged reports whether the bytes from the last whole frame to the end of the
// file were a footer or the beginning of one: they contain their own offset or the offset
// of that frame.
func (v *salvage) footerIsDamaged() bool {
	b := make([]byte, segment.MarkBytes)
	left := v.s.Info.Size - v.good
	if left < segment.MarkBytes || left > segment.FooterBytes || v.s.ReadAt(b, v.good) != nil {
		return false
	}
	return (left == segment.FooterBytes || segment.FrameType(b[4]) == segment.FrameFooter) && (segment.Little.Uint32(b[8:]) == uint32(v.good) || segment.Little.Uint32(b[12:]) == v.chain)
}

// renameDamaged appends .damaged to the name of a damaged file.
func (r *repairer) renameDamaged(p *place) error {
	if r.options.DryRun || p.missing {
		return nil
	}
	if err := r.options.FS.Rename(p.path, p.path+segment.DamagedSuffix); err != nil {
		return err
	}
	return r.options.FS.SyncDir(r.dir)
}

// progress counts bytes that were read.
func (r *repairer) progress(bytes int64) {
	r.done += bytes
	r.options.Progress(r.done, max(r.total, r.done))
}
