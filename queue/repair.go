package queue

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

// DamagedSuffix ends the name that Repair gives a file which a rewrite has taken
// the place of. It is no part of the queue any more.
const DamagedSuffix = ".damaged"

// RepairOptions say how a queue is repaired. Nil and zero values are the defaults.
type RepairOptions struct {
	// FS is where the directory lies. The default is vfs.OS.
	FS vfs.FS
	// DryRun finds out and reports all, and changes nothing. It needs no lock.
	DryRun bool
	// OnLoss is told of each loss. Its error ends Repair. The ID is valid until it
	// returns.
	OnLoss func(Loss) error
	// Progress is told of the bytes that have been read, of how many to be read.
	Progress func(done, total int64)
	// Logger is told of each file. The default is silence.
	Logger *slog.Logger
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// RepairedFile is a file that was damaged, or segments that are missing.
type RepairedFile struct {
	Path        string // of a missing segment, the one that it had
	First, Last SegmentID
	Missing     bool
	// Rewrite is the file that takes its place. Empty: what the damaged file itself
	// had replaced, or was replaced by, is there and whole.
	Rewrite string
	Damage  []*CorruptionError // the first maxDamage
	// Kept entries are as they were. LostDocuments have kept their ids, and are
	// unavailable. Of LostRanges nobody knows what stood there.
	Kept, LostDocuments int64
	LostRanges          int
	// UnprovenExpiries of the Kept lay in damaged bytes.
	UnprovenExpiries int64
}

// Repair makes a queue whole again at its source, where nobody has a good copy of
// what is damaged: first look for one, since what Repair cannot prove to be right
// is lost.
//
// It verifies every byte, and puts what can be saved of each damaged or missing
// segment into a rewrite (see Compact) with its addresses as they were, so that
// readers and copies go on. The damaged file keeps its bytes under another name,
// with DamagedSuffix.
//
// A document that is damaged keeps its entry: its id is unavailable until it is
// appended or deleted again. Where a table is damaged ids are lost, and with them
// deletes and newer versions: an index that is made of the queue from then on has
// for such an id the version before, if there was one. An index that knew better
// stays as it is: addresses that were lost are unavailable.
//
// Nobody may be writing: ErrLocked. In a copy of a queue, which has no LOCK,
// Repair refuses. ErrForked: a segment that is whole belongs to another history.
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
	listing     listing
	head        Head  // zero: there is none, or it is damaged
	done, total int64 // bytes read, and to be read

	places   []*place // what holds the segments, in order
	spare    []*place // damaged files whose segments are whole elsewhere
	queue    [16]byte
	known    []knownDictionary // of other segments; nil: not looked for yet
	repaired []RepairedFile
}

func (r *repairer) complete() {
	o := &r.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.OnLoss == nil {
		o.OnLoss = func(Loss) error { return nil }
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// lockSource keeps writers and compactions out of a queue that is written here.
func lockSource(fsys vfs.FS, dir string, now time.Time) (unlock func(), err error) {
	if _, err := fsys.Stat(filepath.Join(dir, lockName)); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Newf("queue: %s has no %s, so it is a copy: change the queue at its source; "+
			"if this is to be the source from now on, make an empty %[2]s", dir, lockName)
	}
	writer, err := lockDir(fsys, dir, now)
	if err != nil {
		return nil, err
	}
	compaction, err := lockFile(fsys, dir, compactLockName, now)
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
	if r.head, err = ReadHead(r.options.FS, r.dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
		return err
	}
	if err := r.survey(ctx); err != nil {
		return err
	}
	if err := r.identify(); err != nil {
		return err
	}
	var previous digest // of the segment before
	for i, p := range r.places {
		next := r.previousOf(i + 1)
		if p.header != nil && p.header.previous != previous || p.digest != nil && next != nil && *p.digest != *next {
			return &markedError{mark: ErrForked, detail: p.path + " does not follow the segment before it, or the segment behind it or " +
				"the head file names another one: they belong to different histories of the queue"}
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
		if err := r.setAside(p); err != nil {
			return err
		}
		r.repaired = append(r.repaired, p.report())
	}
	return r.saveHead()
}

// saveHead makes the head file again, of the segments as they are now.
func (r *repairer) saveHead() error {
	if r.options.DryRun || len(r.places) == 0 || len(r.repaired) == 0 && r.head.Highest > 0 {
		return nil
	}
	head, err := headOf(r.options.FS, r.dir, r.options.Now)
	if err != nil {
		return err
	}
	return head.save(true)
}

// identify finds out which queue it is.
func (r *repairer) identify() error {
	named := false
	for _, p := range r.places {
		if p.header == nil {
			continue
		}
		if named && p.header.queue != r.queue {
			return &markedError{mark: ErrForked, detail: p.path + " is of another queue than the segments before it"}
		}
		r.queue, named = p.header.queue, true
	}
	for _, p := range r.places {
		if named || p.missing {
			continue
		}
		s, err := r.open(p)
		if err != nil {
			return err
		}
		if named = s.footer != nil; named {
			r.queue = s.footer.queue
		} else {
			r.queue = s.header.queue // to be proved
		}
		s.file.Close()
	}
	return nil
}

// previousOf is the digest of the segment before a place, as the place's header or
// the head file has it; nil: unknown.
func (r *repairer) previousOf(i int) *digest {
	if i == len(r.places) {
		if last := r.places[i-1]; last.run.last != r.head.Sealed || last.truncated {
			return nil
		}
		d := digest(r.head.Digest)
		return &d
	}
	if r.places[i].header == nil {
		return nil
	}
	return &r.places[i].header.previous
}

// repair writes the rewrite of a damaged or missing place, and returns the digest
// that the segment behind it goes on from.
func (r *repairer) repair(ctx context.Context, p *place, previous digest, next *digest) (digest, error) {
	report := p.report()
	header := segmentHeader{
		queue: r.queue, segment: p.run.first, created: r.options.Now().UnixMilli(), previous: previous,
		rewrites: rewriteRun{p.run.first, p.run.last, r.listing.highestGeneration(p.run) + 1},
	}
	if header.rewrites.generation > maxGeneration {
		return previous, errors.Newf("%s: it was rewritten %d times, and cannot be once more", p.path, maxGeneration)
	}
	v := &salvage{loss: r.options.OnLoss}
	var s *segmentFile
	if !p.missing {
		var err error
		if s, err = r.open(p); err != nil {
			return previous, err
		}
		defer s.file.Close()
		v.s = s
	}
	dictionary, err := r.prepare(v, p, &header)
	if err != nil {
		return previous, err
	}
	out := &rewriteFile{fs: r.options.FS, dir: r.dir}
	if r.options.DryRun {
		err = out.begin(header, dictionary)
	} else {
		out, err = createRewrite(r.options.FS, r.dir, header, dictionary)
	}
	if err != nil {
		return previous, err
	}
	v.write, v.progress = out.write, r.progress
	if err := r.fill(ctx, v, p, next, &out.table); err != nil {
		return previous, out.abandon(err)
	}
	if err := out.finish(); err != nil {
		return previous, err
	}
	if err := r.setAside(p); err != nil {
		return previous, err
	}
	report.Rewrite = out.path()
	report.Kept = int64(out.totals.entries) - v.lostIDs
	report.LostDocuments, report.LostRanges, report.UnprovenExpiries = v.lostIDs, len(v.lost), v.unproven
	r.repaired = append(r.repaired, report)
	what := "segments repaired"
	if r.options.DryRun {
		what = "segments can be repaired"
	}
	r.options.Logger.Info(what, "path", p.path, "rewrite", report.Rewrite, "kept", report.Kept,
		"lost_documents", report.LostDocuments, "lost_ranges", report.LostRanges)
	return out.table.last(), nil
}

// prepare finds out with what the documents can be decoded, and where the frames
// begin. It completes the header of the rewrite.
func (r *repairer) prepare(v *salvage, p *place, header *segmentHeader) (dictionary []byte, err error) {
	v.done = Address{Segment: p.run.first}
	if p.missing {
		v.damaged = true
		return nil, nil
	}
	var whole bool
	if p.header != nil {
		v.s.header = *p.header
		dictionary, whole, err = r.recoverDictionary(v.s)
	} else {
		dictionary, whole, err = r.recoverHeader(v.s, p.headerRun(), header.previous)
		v.damaged = !whole
	}
	if err != nil {
		return nil, err
	}
	v.offset = v.s.header.firstFrame()
	if v.good = v.offset; whole && p.run.generation == 0 {
		v.done.Block = uint32(v.offset)
	}
	v.chain, v.appended = v.s.header.crc, v.s.header.created
	if v.opaque = !whole; v.opaque {
		return nil, nil
	}
	header.codec, header.sampled, header.erases = v.s.header.codec, v.s.header.sampled, v.s.header.erases
	return dictionary, nil
}

// fill runs the salvage and completes the relocations of the rewrite.
func (r *repairer) fill(ctx context.Context, v *salvage, p *place, next *digest, table *relocations) error {
	behind := Address{Segment: p.run.last + 1}
	table.settled = behind
	footer := segmentFooter{queue: r.queue, segment: p.run.last}
	if !p.missing {
		if err := v.run(ctx); err != nil {
			return err
		}
		if err := v.finish(p, next, &footer); err != nil {
			return err
		}
		table.cursor = v.cursor
	}
	if err := v.account(behind); err != nil {
		return err
	}
	// The digests of segments that are missing are unknown, except the last one.
	table.digests, table.lost = make([]digest, p.run.last-p.run.first+1), v.lost
	last := &table.digests[len(table.digests)-1]
	*last = footer.digest()
	if p.run.generation > 0 {
		r.takeOverTable(v, table)
	}
	if next != nil {
		*last = *next
	}
	return nil
}

// takeOverTable takes over what the relocations of a damaged rewrite say. Where
// they are damaged nobody knows when what it left out was superseded, only that
// it was before now.
func (r *repairer) takeOverTable(v *salvage, table *relocations) {
	before := v.table
	if v.s.footer != nil {
		before = v.s.relocations
	}
	if before == nil {
		table.settled = Address{Segment: r.listing.last(), Block: math.MaxUint32}
		return
	}
	table.settled, table.cursor, table.truncated = before.settled, before.cursor, before.truncated
	copy(table.digests, before.digests)
	table.lost = append(table.lost, before.lost...)
	slices.SortFunc(table.lost, func(a, b addressRange) int {
		return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to))
	})
}

// finish decides whether anything may have stood behind the last whole frame, and
// completes the footer that the segment has, or had, or might have had.
func (v *salvage) finish(p *place, next *digest, footer *segmentFooter) error {
	original := p.run.generation == 0
	footer.offset, footer.chain, footer.totals = uint32(v.good), v.chain, v.totals
	switch found := cmp.Or(v.s.footer, v.footer); {
	case found != nil:
		*footer = *found
		if original {
			return v.account(Address{Segment: v.s.number, Block: found.offset})
		}
	case p.open:
		v.damaged = false // what was not committed is nobody's loss
	case !original:
		v.damaged = v.damaged || v.table == nil
	case next != nil && footer.digest() == *next || v.footerIsDamaged():
		v.damaged = false
	default:
		v.damaged = true
	}
	return nil
}

// footerIsDamaged tells whether what follows the last whole frame, to the end of
// the file, was a footer, or the beginning of one: it names its place or that frame.
func (v *salvage) footerIsDamaged() bool {
	b := make([]byte, markBytes)
	left := v.s.info.Size - v.good
	if left < markBytes || left > footerBytes || v.s.readAt(b, v.good) != nil {
		return false
	}
	return (left == footerBytes || frameType(b[4]) == frameFooter) && (little.Uint32(b[8:]) == uint32(v.good) || little.Uint32(b[12:]) == v.chain)
}

// setAside gives a damaged file its other name.
func (r *repairer) setAside(p *place) error {
	if r.options.DryRun || p.missing {
		return nil
	}
	if err := r.options.FS.Rename(p.path, p.path+DamagedSuffix); err != nil {
		return err
	}
	return r.options.FS.SyncDir(r.dir)
}

// progress counts bytes that were read.
func (r *repairer) progress(bytes int64) {
	r.done += bytes
	r.options.Progress(r.done, max(r.total, r.done))
}
