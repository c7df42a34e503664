package queue

import (
	"context"
	"log/slog"
	"path/filepath"
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
	// EraseDead rewrites every sealed segment that holds a document which has been
	// dead for at least EraseAfter: deleted, overwritten or expired; and every one
	// whose dictionary may have been made of such a document.
	EraseDead  bool
	EraseAfter time.Duration
	// DeleteOriginals removes what a rewrite has replaced when the rewrite is at
	// least DeleteAfter old. Without it nothing is ever removed.
	DeleteOriginals bool
	DeleteAfter     time.Duration
	// MemoryBytes bounds what ids are kept in. The default is DefaultUsageMemory.
	MemoryBytes int64
	// Progress is told of the bytes of the files that were rewritten, and of the
	// rewrites that were verified before anything is removed for their sake, of how
	// many in all as far as is known by then.
	Progress func(done, total int64)
	// Logger is told of each rewrite and removal. The default is silence.
	Logger *slog.Logger
	// Now is the clock. The default is time.Now.
	Now func() time.Time

	dictionaryBytes int // size to train to; 0 is the default
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
	// NotErased are the segments that are not sealed and hold documents to be
	// erased, with EraseDead. They can be rewritten when they are sealed.
	NotErased []SegmentID
}

// Compact rewrites sealed segments of which more than MaxDead is dead, and merges
// small rewrites. What is kept has its address as before. It may run while a Writer
// appends and Readers read, and may be ended at any time; one runs at a time, the
// other gets ErrLocked.
//
// The newest segment with entries, and what is newer, is rewritten only by
// EraseDead. Damaged documents end Compact with a *CorruptionError; what was
// rewritten before stays.
//
// What was erased is in no file of the directory when the files that were replaced
// are removed, too (DeleteOriginals). The ids of deletes stay as long as they have
// something to delete. A Writer that is open may still train a dictionary from
// documents that were erased meanwhile, or go on with one: another EraseDead finds
// the segments that have it.
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
	// done of total bytes are what Progress is told.
	done, total int64
	lost        SegmentID // the first segment of which a repair has noted losses; 0: none
}

func (c *compaction) complete() {
	o := &c.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.MaxDead == 0 {
		o.MaxDead = DefaultMaxDead
	}
	if o.dictionaryBytes == 0 {
		o.dictionaryBytes = defaultDictionaryBytes
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
	if err := clearUp(c.options.FS, c.dir); err != nil {
		return err
	}
	now := c.options.Now()
	parts, err := c.survey(ctx, now)
	if err != nil {
		return err
	}
	runs := planRewrites(parts, c.options.MaxDead, DefaultSegmentBytes)
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

// pass tells that bytes are done with.
func (c *compaction) pass(bytes int64) {
	c.done += bytes
	if c.options.Progress != nil {
		c.options.Progress(c.done, c.total)
	}
}

// clearUp removes what a compaction or repair that was ended has left behind. Before
// anything relies on the names that it has given they are made durable: otherwise a
// loss of power could take a rewrite, and keep that what it stands for was removed.
func clearUp(fsys vfs.FS, dir string) error {
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
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

// survey describes what may be rewritten, in order: the sealed files that count,
// and what of them is dead.
func (c *compaction) survey(ctx context.Context, now time.Time) ([]part, error) {
	infos, err := c.reader.Segments()
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		if info.lost > 0 && (c.lost == 0 || info.lost < c.lost) {
			c.lost = info.lost
		}
	}
	u := usageScan{now: now}
	if u.deletesStay, err = c.deletesStay(); err != nil {
		return nil, err
	}
	if c.options.EraseDead {
		u.deadBefore = now.Add(-c.options.EraseAfter)
	}
	if err := u.run(ctx, c.reader, c.options.MemoryBytes); err != nil {
		return nil, err
	}
	newest := len(infos) - 1
	for newest >= 0 && infos[newest].Entries == 0 {
		newest--
	}
	var parts []part
	usage := u.segments
	for i, info := range infos {
		p := part{
			rewriteRun: rewriteRun{info.ID, info.Last, info.Generation}, entries: info.Entries, bytes: info.Bytes,
			encoding: encoding{codec: info.Codec, dictionary: info.dictionary}, sampled: info.sampled,
			newest: i >= newest,
		}
		for len(usage) > 0 && usage[0].Segment <= p.last {
			if p.covers(usage[0].Segment) { // else its file could not be described just now
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

// deletesStay returns the first segment whose deletes, and those of all later segments,
// must be kept whatever they delete; 0 means none. Two cases need them. A replaced file
// is still in the directory: a replica may have that file and lack its rewrite. A repair
// has noted losses: an index may have read an entry that was lost since.
//
// The answer holds for the files as they are. Each rewrite replaces more of them, so
// every batch asks again, after it has read the queue.
func (c *compaction) deletesStay() (SegmentID, error) {
	l, err := c.reader.list()
	if err != nil {
		return 0, err
	}
	oldest, ok := l.oldestReplaced()
	if ok && (c.lost == 0 || oldest < c.lost) {
		return oldest + 1, nil
	}
	return c.lost, nil
}
