package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"time"

	"docstore/internal/vfs"
)

// rewriteAll determines the entries to keep of the runs, in one pass over the tables of
// the queue, and writes the rewrites.
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
	var newest Address
	err := c.reader.Scan(ctx, Position{}, func(e Entry) error {
		settled, newest = e.Next, e.Address
		if v := versions[hashID(e.ID)]; v != nil {
			if !e.Deleted && v.first == 0 {
				v.first = e.Address.Segment
			}
			if !v.newest.IsZero() && len(retainedBetween(c.options.RetainedEnds, v.newest.Segment, e.Address.Segment)) > 0 {
				v.retained = append(v.retained, v.newest)
			}
			v.newest = e.Address
		}
		return nil
	})
	if err != nil {
		return err
	}
	deletesStay, err := c.deletesStay()
	if err != nil {
		return err
	}
	for _, run := range runs {
		w := rewriter{
			compaction: c, run: run, now: now, versions: versions, settled: settled.Next, newest: newest,
			keepDeletes: deletesStay > 0 && deletesStay <= run.last(),
		}
		if err := w.rewrite(ctx); err != nil {
			return err
		}
	}
	return nil
}

// version is the state of an id in the queue.
type version struct {
	newest Address
	first  SegmentID // the first segment with a document of it; 0: none
	// retained are earlier entries that were the newest of the id in a retained state.
	retained []Address
}

func hashID(id []byte) idHash {
	sum := sha256.Sum256(id)
	return idHash(sum[:16])
}

// eachBlock calls fn for each block of the files of a run, with its original address and
// its offset in the file.
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
		s.close()
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
		s.close()
		err = errIncomplete
	}
	return s, err
}
