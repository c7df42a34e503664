package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

const (
	compactLockName = "COMPACT" // one compaction at a time
	// compactBytesPerID bounds what an id takes while it is found out what of it
	// is superfluous: 36 bytes in a map that is at least 7/16 full.
	compactBytesPerID = 90
)

// CompactOptions say what Compact does. Nil and zero values are the defaults.
type CompactOptions struct {
	// FS is where the directory lies. The default is vfs.OS.
	FS vfs.FS
	// MaxDead is the share of a segment's stored bytes that may be dead, 0 to 1,
	// before it is rewritten. The default is DefaultMaxDead.
	MaxDead float64
	// DeleteOriginals removes what a rewrite has replaced when the rewrite is at
	// least DeleteAfter old. Without it nothing is ever removed.
	DeleteOriginals bool
	DeleteAfter     time.Duration
	// MemoryBytes bounds what ids are kept in. The default is DefaultUsageMemory.
	MemoryBytes int64
	// Logger is told of each rewrite and removal. The default is silence.
	Logger *slog.Logger
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// DefaultMaxDead is the share of dead bytes from which on a segment is rewritten.
const DefaultMaxDead = 0.5

// CompactReport is what Compact has done.
type CompactReport struct {
	Replaced     int   // segments and rewrites that have a rewrite in their place now
	Rewrites     int   // written
	BytesBefore  int64 // of the files that were replaced
	BytesAfter   int64 // of the rewrites
	Deleted      int   // files
	DeletedBytes int64
}

// Compact rewrites sealed segments of which more than MaxDead is dead. What
// is kept has its address as before. It may run while a Writer appends and Readers read,
// and may be ended at any time; one runs at a time, the other gets ErrLocked.
//
// The newest segment with entries is left alone, since the Writer goes on from
// it, and so is what is newer. Damaged documents end Compact with a
// *CorruptionError; what was rewritten before stays.
func Compact(ctx context.Context, dir string, opts *CompactOptions) (CompactReport, error) {
	c := compaction{dir: dir}
	if opts != nil {
		c.options = *opts
	}
	c.complete()
	lock, err := lockFile(c.options.FS, dir, compactLockName, c.options.Now())
	if err != nil {
		return c.report, err
	}
	defer lock.Close()
	r, err := OpenReader(dir, &ReaderOptions{FS: c.options.FS, Logger: c.options.Logger})
	if err != nil {
		return c.report, err
	}
	defer func() { _ = r.Close() }() // it only reads
	c.reader = r
	if err := c.run(ctx); err != nil {
		return c.report, errors.Wrapf(err, "queue: compacting %s", dir)
	}
	return c.report, nil
}

type compaction struct {
	dir     string
	options CompactOptions
	reader  *Reader
	report  CompactReport
	lost    SegmentID // the first of which a repair has noted losses; 0: none
}

func (c *compaction) complete() {
	o := &c.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.MaxDead == 0 {
		o.MaxDead = DefaultMaxDead
	}
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = DefaultUsageMemory
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

func (c *compaction) run(ctx context.Context) error {
	if err := removeUnderWay(c.options.FS, c.dir); err != nil {
		return err
	}
	now := c.options.Now()
	usage, err := c.reader.Usage(ctx, now, c.options.MemoryBytes)
	if err != nil {
		return err
	}
	parts, err := c.parts(usage)
	if err != nil {
		return err
	}
	runs := planRewrites(parts, c.options.MaxDead, DefaultSegmentBytes)
	for len(runs) > 0 {
		batch, entries := 1, runs[0].entries()
		for batch < len(runs) && (entries+runs[batch].entries())*compactBytesPerID <= c.options.MemoryBytes {
			entries += runs[batch].entries()
			batch++
		}
		if err := c.rewriteAll(ctx, runs[:batch], now); err != nil {
			return err
		}
		runs = runs[batch:]
	}
	if !c.options.DeleteOriginals {
		return nil
	}
	return c.deleteReplaced(ctx, now)
}

// removeUnderWay removes what a compaction or repair that was ended has left
// behind.
func removeUnderWay(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := parseRewriteName(strings.TrimSuffix(name, underWaySuffix)); ok && strings.HasSuffix(name, underWaySuffix) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// parts describes what may be rewritten: the sealed files that count, but for
// the newest with entries and what is behind it.
func (c *compaction) parts(usage []Usage) ([]part, error) {
	infos, err := c.reader.Segments()
	if err != nil {
		return nil, err
	}
	newest := len(infos) - 1
	for newest >= 0 && infos[newest].Entries == 0 {
		newest--
	}
	var parts []part
	for _, info := range infos {
		if c.lost = info.lost; c.lost > 0 {
			break
		}
	}
	for _, info := range infos[:max(newest, 0)] {
		if !info.Sealed {
			continue
		}
		p := part{
			rewriteRun: rewriteRun{info.ID, info.Last, info.Generation}, entries: info.Entries, bytes: info.Bytes,
			encoding: encoding{info.Codec, info.dictionary},
		}
		for _, u := range usage {
			if p.covers(u.Segment) {
				p.stored += u.StoredBytes
				p.live += u.LiveBytes
			}
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// rewriteAll finds out what the runs have to keep, in one pass over the tables
// of the queue, and rewrites them.
func (c *compaction) rewriteAll(ctx context.Context, runs []plannedRun, now time.Time) error {
	versions := map[idHash]*version{}
	for _, run := range runs {
		if err := c.eachBlock(ctx, run, func(_ *segmentFile, b *block, _ Address, _ int64) error {
			for i := range b.count {
				versions[hashID(b.id(b.entry(i)))] = new(version)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	var settled Position
	err := c.reader.Scan(ctx, Position{}, func(e Entry) error {
		settled = e.Next
		if v := versions[hashID(e.ID)]; v != nil {
			if !e.Deleted && v.first == 0 {
				v.first = e.Address.Segment
			}
			v.newest = e.Address
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Where files are still there that rewrites have replaced, some copy may have
	// those and not yet the rewrites: then deletes stay, whatever they delete. So
	// they do behind a loss: an index may have read what stood there.
	l, err := c.reader.list()
	if err != nil {
		return err
	}
	oldest, replaced := l.oldestReplaced()
	for _, run := range runs {
		w := rewriter{
			compaction: c, run: run, now: now, versions: versions, settled: settled.Next,
			keepDeletes: replaced && oldest < run.first() || c.lost > 0 && c.lost <= run.last(),
		}
		if err := w.rewrite(ctx); err != nil {
			return err
		}
	}
	return nil
}

// version is what the queue holds of an id.
type version struct {
	newest Address
	first  SegmentID // with a document of it; 0 is none
}

func hashID(id []byte) idHash {
	sum := sha256.Sum256(id)
	return idHash(sum[:16])
}

// eachBlock calls fn for each block of the files of a run, with its original
// address and where it lies.
func (c *compaction) eachBlock(ctx context.Context, run plannedRun, fn func(s *segmentFile, b *block, at Address, offset int64) error) error {
	var b block
	for _, p := range run.parts {
		s, err := p.open(c.options.FS, c.dir)
		if err != nil {
			return err
		}
		w := s.newWalk()
		for err == nil {
			offset := w.next
			var kind frameType
			if kind, err = w.step(s, &b); err != nil || kind == frameFooter {
				break
			}
			if kind == frameBlock {
				at, _ := b.origin(Address{Segment: s.number, Block: uint32(offset)})
				err = cmp.Or(ctx.Err(), fn(s, &b, at, offset))
			}
		}
		s.file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens a sealed file.
func (p *part) open(fsys vfs.FS, dir string) (*segmentFile, error) {
	name := segmentPath(dir, p.first, sealedSuffix)
	if p.generation > 0 {
		name = p.path(dir)
	}
	s, err := openSegmentFile(fsys, name, p.first)
	if err == nil && s.footer == nil {
		s.file.Close()
		err = errIncomplete
	}
	return s, err
}

// oldestReplaced is the first segment number of the files that a rewrite of a
// higher generation stands for.
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

// deleteReplaced removes the files whose rewrite is old enough, each rewrite
// verified to its last byte before.
func (c *compaction) deleteReplaced(ctx context.Context, now time.Time) error {
	l, err := c.reader.list()
	if err != nil {
		return err
	}
	slices.SortFunc(l.rewrites, func(a, b rewriteRun) int { return cmp.Compare(b.generation, a.generation) })
	for _, r := range l.rewrites {
		names := l.replacedBy(r)
		if len(names) == 0 {
			continue
		}
		old, err := c.oldAndSound(ctx, r, now)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed a moment ago for the sake of a higher generation
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if !old {
				break
			}
			if err := c.remove(name); err != nil {
				return err
			}
		}
	}
	return c.options.FS.SyncDir(c.dir)
}

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
	return names
}

func (c *compaction) remove(name string) error {
	path := filepath.Join(c.dir, name)
	info, err := c.options.FS.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // for the sake of a higher generation
	}
	if err != nil {
		return err
	}
	if err := c.options.FS.Remove(path); err != nil {
		return err
	}
	c.options.Logger.Info("replaced file removed", "path", path, "bytes", info.Size)
	c.report.Deleted++
	c.report.DeletedBytes += info.Size
	return nil
}

// oldAndSound tells whether a rewrite may stand alone.
func (c *compaction) oldAndSound(ctx context.Context, r rewriteRun, now time.Time) (bool, error) {
	p := part{rewriteRun: r}
	s, err := p.open(c.options.FS, c.dir)
	if err != nil {
		return false, err
	}
	created := time.UnixMilli(s.header.created)
	s.file.Close()
	if now.Sub(created) < c.options.DeleteAfter {
		return false, nil
	}
	return true, c.eachBlock(ctx, plannedRun{parts: []part{p}}, func(s *segmentFile, b *block, _ Address, offset int64) error {
		bad, err := s.checkDocuments(b, offset, nil)
		if err == nil && len(bad) > 0 {
			err = bad[0]
		}
		return err
	})
}
