package queue

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/errors"
)

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

// deleteReplaced removes the files whose rewrite is old enough. It verifies every byte of
// a rewrite first.
func (c *compaction) deleteReplaced(ctx context.Context, now time.Time) error {
	l, err := c.reader.list()
	if err != nil {
		return err
	}
	byGeneration := func(a, b rewriteRun) int { return cmp.Compare(b.generation, a.generation) }
	for _, r := range slices.SortedFunc(slices.Values(l.rewrites), byGeneration) {
		names := l.replacedBy(r)
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
func (c *compaction) oldAndSound(ctx context.Context, r rewriteRun, now time.Time) (bool, error) {
	p := part{rewriteRun: r}
	s, err := p.open(c.options.FS, c.dir)
	if err != nil {
		return false, err
	}
	created, size := time.UnixMilli(s.header.created), s.info.Size
	s.close()
	if now.Sub(created) < c.options.DeleteAfter {
		return false, nil
	}
	c.total += size
	before := c.done
	err = c.eachBlock(ctx, plannedRun{parts: []part{p}}, func(s *segmentFile, b *block, _ Address, offset int64) error {
		bad, err := s.checkDocuments(b, offset, nil)
		if err == nil && len(bad) > 0 {
			err = bad[0]
		}
		c.pass(b.size())
		return err
	})
	c.pass(before + size - c.done)
	return true, err
}
