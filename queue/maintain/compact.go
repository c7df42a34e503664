package maintain

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

const (
	// compactBytesPerID bounds the memory of an id while a batch is planned: 36 bytes
	// in a map that is at least 7/16 full.
	compactBytesPerID = 90
)

// CompactOptions configure Compact. Nil and zero values are the defaults.
type CompactOptions struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// MaxDead is the fraction of a segment's stored bytes that may be dead before it is
	// rewritten, 0 to 1. The default is DefaultMaxDead.
	MaxDead float64
	// EraseDead rewrites every sealed segment with a document that has been dead
	// (deleted, overwritten or expired) for at least EraseAfter, and every segment whose
	// dictionary may have been trained from such a document.
	EraseDead  bool
	EraseAfter time.Duration
	// DeleteOriginals removes replaced files when their rewrite is at least DeleteAfter
	// old. Without it no file is removed.
	DeleteOriginals bool
	DeleteAfter     time.Duration
	// RetainedEnds are the last segments, in ascending order, of earlier states of the queue
	// that are kept: the newest entry of an id in such a state stays, and no rewrite extends
	// over the end of one. EraseDead keeps these entries, too.
	RetainedEnds []queue.SegmentID
	// MemoryBytes bounds the memory for ids. The default is DefaultUsageMemory.
	MemoryBytes int64
	// Progress is called with the number of bytes processed so far and the total known so
	// far: of the files that are rewritten, and of the rewrites that are verified before
	// files are removed.
	Progress func(done, total int64)
	// DictionaryBytes is the size of dictionaries that are trained again. The default is 64 KiB.
	DictionaryBytes int
	// Logger logs each rewrite and removal. The default discards them.
	Logger *slog.Logger
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// DefaultMaxDead is the default of CompactOptions.MaxDead.
const DefaultMaxDead = 0.5

// CompactReport is the result of Compact.
type CompactReport struct {
	Replaced     int   // segments and rewrites that were replaced
	Rewrites     int   // number of rewrites written
	BytesBefore  int64 // of the files that were replaced
	BytesAfter   int64 // of the rewrites
	Deleted      int   // files
	DeletedBytes int64
	// NotErased are the open segments with documents to be erased, with EraseDead. They
	// can be rewritten after they are sealed.
	NotErased []queue.SegmentID
	// Held are the RetainedEnds for which documents to be erased were kept, with EraseDead.
	Held []queue.SegmentID
}

// Compact rewrites sealed segments in which more than MaxDead is dead, and merges small
// rewrites. Kept entries keep their addresses. It may run while a Writer appends and
// Readers read, and may be stopped at any time. Only one runs at a time; another gets
// ErrLocked.
//
// The newest segment with entries, and segments after it, are rewritten only by
// EraseDead. A damaged document ends Compact with a *CorruptionError; completed rewrites
// stay.
//
// After EraseDead, and after DeleteOriginals has removed the replaced files, no file of
// the directory contains an erased document. A delete, with its id, stays as long as a
// file may contain an older version of the document. An open Writer may still train a
// dictionary from documents that have been erased, or continue to use one: a later
// EraseDead finds the segments that contain it.
func Compact(ctx context.Context, dir string, opts *CompactOptions) (CompactReport, error) {
	c := compaction{dir: dir}
	if opts != nil {
		c.options = *opts
	}
	c.complete()
	lock, err := segment.Lock(c.options.FS, dir, segment.CompactLockName, c.options.Now())
	if err != nil {
		return c.report, err
	}
	defer lock.Close()
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: c.options.FS, Logger: c.options.Logger})
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
	reader  *queue.Reader
	report  CompactReport
	// done and total are the arguments of Progress.
	done, total int64
	lost        queue.SegmentID // the first segment with losses recorded by a repair; 0: none
}

func (c *compaction) complete() {
	o := &c.options
	setDefaults(&o.FS, &o.Logger, &o.Now)
	if o.MaxDead == 0 {
		o.MaxDead = DefaultMaxDead
	}
	if o.DictionaryBytes == 0 {
		o.DictionaryBytes = dictionary.DefaultBytes
	}
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = DefaultUsageMemory
	}
}

func (c *compaction) run(ctx context.Context) error {
	if err := clearUp(c.options.FS, c.dir); err != nil {
		return err
	}
	now := c.options.Now()
	parts, err := c.survey(ctx, now)
	if err != nil {
		return err
	}
	runs := planRewrites(parts, c.options.MaxDead, queue.DefaultSegmentBytes)
	for _, run := range runs {
		c.total += run.bytes()
	}
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

// pass counts bytes that have been processed.
func (c *compaction) pass(bytes int64) {
	c.done += bytes
	if c.options.Progress != nil {
		c.options.Progress(c.done, c.total)
	}
}

// clearUp removes incomplete rewrites of an earlier compaction or repair. It first makes
// the names of complete rewrites durable: otherwise a power loss could remove a rewrite
// after the files that it replaces.
func clearUp(fsys vfs.FS, dir string) error {
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := segment.ParseRewriteName(strings.TrimSuffix(name, segment.TemporarySuffix)); ok && strings.HasSuffix(name, segment.TemporarySuffix) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// survey describes the files that may be rewritten, in order, and their dead bytes.
func (c *compaction) survey(ctx context.Context, now time.Time) ([]part, error) {
	infos, err := c.reader.Segments()
	if err != nil {
		return nil, err
	}
	newest := len(infos) - 1
	for newest >= 0 && infos[newest].Entries == 0 {
		newest--
	}
	all := make([]part, len(infos))
	for i, info := range infos {
		all[i] = part{
			Run: segment.Run{First: info.ID, Last: info.Last, Generation: info.Generation}, entries: info.Entries, bytes: info.Bytes,
			encoding: encoding{codec: info.Codec, dictionary: info.Dictionary},
			newest:   i >= newest, end: slices.Contains(c.options.RetainedEnds, info.Last),
		}
		if info.Sealed {
			if err := c.readFile(&all[i]); err != nil {
				return nil, err
			}
		}
	}
	u := usageScan{now: now, ends: c.options.RetainedEnds, held: map[queue.SegmentID]bool{}}
	if u.deletesStay, err = c.deletesStay(); err != nil {
		return nil, err
	}
	if c.options.EraseDead {
		u.deadBefore = now.Add(-c.options.EraseAfter)
	}
	if err := u.run(ctx, c.reader, c.options.MemoryBytes); err != nil {
		return nil, err
	}
	c.report.Held = slices.Sorted(maps.Keys(u.held))
	var parts []part
	usage := u.segments
	for i, info := range infos {
		p := all[i]
		for len(usage) > 0 && usage[0].Segment <= p.Last {
			if p.Covers(usage[0].Segment) { // otherwise its file could not be described
				p.account(&usage[0])
			}
			usage = usage[1:]
		}
		switch {
		case info.Sealed:
			parts = append(parts, p)
		case p.erase:
			c.report.NotErased = append(c.report.NotErased, info.ID)
		}
	}
	if c.options.EraseDead {
		markTainted(parts)
	}
	return parts, nil
}

// readFile reads the segments that the dictionary of a part was trained from, and the first loss
// that a repair has recorded in it.
func (c *compaction) readFile(p *part) error {
	s, err := p.open(c.options.FS, c.dir)
	if err != nil {
		return err
	}
	defer s.Close()
	p.sampled = s.Header.Sampled
	if s.Relocations != nil && len(s.Relocations.Lost) > 0 {
		if first := s.Relocations.Lost[0].From.Segment; c.lost == 0 || first < c.lost {
			c.lost = first
		}
	}
	return nil
}

// deletesStay returns the first segment whose deletes, and those of all later segments,
// must be kept even if they delete nothing; 0: none. There are two reasons. A replaced
// file is still in the directory: a replica may have that file and lack its rewrite. A
// repair has recorded losses: an index may have read an entry that was lost later.
//
// The answer is valid for the current files. Each rewrite replaces more of them, so every
// batch asks again, after it has read the queue.
func (c *compaction) deletesStay() (queue.SegmentID, error) {
	l, err := segment.List(c.options.FS, c.dir)
	if err != nil {
		return 0, err
	}
	oldest, ok := l.OldestReplaced()
	if ok && (c.lost == 0 || oldest < c.lost) {
		return oldest + 1, nil
	}
	return c.lost, nil
}

// deleteReplaced removes the files whose rewrite is old enough. It verifies every byte of
// a rewrite first.
func (c *compaction) deleteReplaced(ctx context.Context, now time.Time) error {
	l, err := segment.List(c.options.FS, c.dir)
	if err != nil {
		return err
	}
	byGeneration := func(a, b segment.Run) int { return cmp.Compare(b.Generation, a.Generation) }
	for _, r := range slices.SortedFunc(slices.Values(l.Rewrites), byGeneration) {
		names := l.ReplacedBy(r)
		if len(names) == 0 {
			continue
		}
		old, err := c.oldAndSound(ctx, r, now)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed in favor of a higher generation
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

func (c *compaction) remove(name string) error {
	path := filepath.Join(c.dir, name)
	info, err := c.options.FS.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed in favor of a higher generation
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

// oldAndSound reports whether the files that a rewrite replaces may be removed. The error
// is the first damage.
func (c *compaction) oldAndSound(ctx context.Context, r segment.Run, now time.Time) (bool, error) {
	p := part{Run: r}
	s, err := p.open(c.options.FS, c.dir)
	if err != nil {
		return false, err
	}
	created, size := time.UnixMilli(s.Header.Created), s.Info.Size
	s.Close()
	if now.Sub(created) < c.options.DeleteAfter {
		return false, nil
	}
	c.total += size
	before := c.done
	err = c.eachBlock(ctx, plannedRun{parts: []part{p}}, func(s *segment.File, b *segment.Block, _ queue.Address, offset int64) error {
		bad, err := s.CheckDocuments(b, offset, nil)
		if err == nil && len(bad) > 0 {
			err = bad[0]
		}
		c.pass(b.Size())
		return err
	})
	c.pass(before + size - c.done)
	return true, err
}
