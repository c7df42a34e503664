package collection

import (
	"context"
	"encoding/hex"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// Replacement of a queue. A rebuilt ingest host creates another queue, with a new id and
// other documents at the same addresses. When the first segment in the directory belongs
// to another queue, that queue is indexed while the old one is served. It takes over when
// it has been read to the end of the segments here. Until then the old queue is served
// from the files that are left; its reader is bound to its id, so it never reads a file of
// the new queue.
//
// The program that copies another queue into the directory moves the files of the old one
// to ReplacedDir first, as docstore-sync does, so that all documents stay available.
// ReplacedDir is deleted together with the old index.
//
//	   in the directory      in ReplacedDir     served from     being indexed
//	1  A's files                                A's files
//	2  moving                some of A's        open files
//	3  B's files             A's files          ReplacedDir     B
//	4  B's files             removed            B's files
//
// A damaged index is replaced in the same way, by a new index of the same queue. The
// readable entries of the damaged one are served until then. So is an index on request:
// reindex.go.
//
// After a crash at any step, SERVING and the ids determine the state: SERVING names the served
// index (see layout.go), the next one is the replacement, and each has the id of its queue.

// ReplacedDir is the directory in a queue's directory that holds the files of a replaced
// queue.
const ReplacedDir = ".replaced"

// A damaged index is rebuilt at once, unless the previous rebuild was within
// minRebuildPause. Each further rebuild doubles that time, up to maxRebuildPause: a failing
// disk that damages every index would otherwise cause continuous rebuilds. A server with a
// damaged index is not ready until it is rebuilt.
const (
	minRebuildPause = time.Minute
	maxRebuildPause = time.Hour
)

// maxTakeOverWait is the maximum time for which the tail of the served index waits for the
// next index, which has read the queue to its end, to catch up with it.
const maxTakeOverWait = 10 * time.Second

// rebuildPace limits the rate of rebuilds.
type rebuildPace struct {
	last  time.Time // zero: never
	pause time.Duration
}

// allows reports whether an index may be rebuilt now.
func (p *rebuildPace) allows(now time.Time) bool {
	return p.last.IsZero() || now.Sub(p.last) >= p.pause
}

// count records that a rebuild has begun.
func (p *rebuildPace) count(now time.Time) {
	if p.last.IsZero() || now.Sub(p.last) >= 2*maxRebuildPause {
		p.pause = minRebuildPause
	} else {
		p.pause = min(2*p.pause, maxRebuildPause)
	}
	p.last = now
}

// Replacement is a store that is being built to replace the served one: another queue that
// was found in the directory, or the same queue whose index was damaged.
type Replacement struct {
	Queue [16]byte // id of the queue
	// TailedBytes of the PresentBytes of its segments are in its index.
	TailedBytes, PresentBytes int64
	// Faults are the damage that prevents it from being read.
	Faults []Fault
}

// runReplacement checks periodically which queue the directory holds.
func (c *Collection) runReplacement(ctx context.Context) {
	problem := ""
	for ctxtime.Sleep(ctx, c.options.RetryInterval) {
		err := c.advanceReplacement()
		switch {
		case err == nil:
			problem = ""
		case ctx.Err() == nil && err.Error() != problem:
			problem = err.Error()
			c.logger.Error("building or activating the replacement index failed; retrying", "error", err)
		}
	}
}

// advanceReplacement takes the next step of a replacement, if one is due.
func (c *Collection) advanceReplacement() error {
	serving, next, now := c.serving.Load(), c.next(), c.options.Now()
	id := serving.queueID.Load()
	if id == nil {
		return nil // the first queue that arrives is served
	}
	here, err := c.queueIn(c.queueDir)
	if err != nil {
		return err
	}
	ours, theirs := here == *id, here != *id && here != [16]byte{}
	if err := c.follow(serving, ours); err != nil {
		return err
	}
	requested, err := c.reindexRequested()
	if err != nil {
		return err
	}
	switch {
	case next != nil && requested:
		return c.endReindexRequest()
	case next != nil && (ours || theirs) && here != *next.queueID.Load():
		return c.discardNext(next, "its files are gone")
	case next != nil && next.cannotComplete(now) && c.discards.allows(now):
		c.discards.count(now)
		return c.discardNext(next, "its index cannot be completed")
	case next == nil && theirs:
		c.logger.Warn("found another queue; it is served when it has been read to its end",
			"dir", c.queueDir, "queue", hex.EncodeToString(here[:]), "serving", hex.EncodeToString(id[:]))
		return c.openNext(serving, here)
	case next == nil && ours && serving.health.stopped(isTruncation):
		return c.openNext(serving, here)
	case next == nil && ours && serving.indexDamaged() && !serving.health.stopped(isFork) && c.rebuilds.allows(now):
		if err := c.openNext(serving, here); err != nil {
			return err // a full disk does not count
		}
		c.rebuilds.count(now)
		c.logger.Error("the index is damaged and is rebuilt from the queue; its readable entries are served until then",
			"index", serving.number.path(c.dir))
	case next == nil && ours && c.rebuilding:
		c.rebuilding = false
		return c.resumeRebuild(serving, here)
	case next == nil && ours && requested:
		c.logger.Info("another index was requested", "index", serving.number.path(c.dir))
		return c.openNext(serving, here)
	case next != nil && next.health.gap.Load() == nil:
		return c.takeOver(next)
	}
	return nil
}

// queueIn returns the id of the queue to which the first segment in a directory belongs. It
// is zero if there is no segment with a readable header.
func (c *Collection) queueIn(dir string) ([16]byte, error) {
	names, err := c.options.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return [16]byte{}, nil
	}
	if err != nil {
		return [16]byte{}, err
	}
	for _, name := range names {
		f, ok := parseSegmentName(name)
		if !ok || f.id != 1 {
			continue
		}
		if id, err := queue.IDOf(c.options.FS, filepath.Join(dir, name)); err == nil {
			return id, nil
		}
	}
	return [16]byte{}, nil
}

// follow reopens the served queue if its files were moved.
func (c *Collection) follow(serving *store, here bool) error {
	dir := c.queueDir
	if !here {
		dir = filepath.Join(c.queueDir, ReplacedDir)
		if id, err := c.queueIn(dir); err != nil || id != *serving.queueID.Load() {
			return err // its files are in neither directory
		}
	}
	if dir == serving.queueDir {
		return nil
	}
	moved, err := c.newStore(serving.number, serving.index, dir, serving.indexState())
	if err != nil {
		return err
	}
	moved.health.inherit(serving.health)
	c.serving.Store(moved)
	err = serving.leaveQueue()
	moved.health.inherit(serving.health) // changes until the tail ended
	moved.indexing.state = serving.indexState()
	moved.start()
	c.logger.Info("the files of the served queue were moved; reading them there", "dir", dir)
	return err
}

// next returns the store that is being built, nil if there is none.
func (c *Collection) next() *store {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	return c.replacing.next
}

func (c *Collection) setNext(next *store) {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	c.replacing.next = next
}

// openNext opens the next index for the queue with the id, new or partly built, and starts
// to build it.
func (c *Collection) openNext(serving *store, id [16]byte) error {
	number := serving.number.next()
	next, err := c.openPartialNext(number, id)
	if err == nil && next == nil {
		next, err = c.openStore(number, c.queueDir, id)
	}
	return c.startNext(next, err)
}

// resumeRebuild resumes the rebuild of an index that an earlier run began. It does not wait
// until the damage is found again.
func (c *Collection) resumeRebuild(serving *store, id [16]byte) error {
	return c.startNext(c.openPartialNext(serving.number.next(), id))
}

// openPartialNext opens an index, possibly partly built, for the queue with the id. If the
// index is damaged or of another queue, it deletes it and returns nil.
func (c *Collection) openPartialNext(number indexNumber, id [16]byte) (*store, error) {
	next, err := c.openStore(number, c.queueDir, id)
	switch {
	case isDamage(err):
		return nil, c.removeIndex(number)
	case err == nil && *next.queueID.Load() != id:
		return nil, errors.CombineErrors(next.close(), c.removeIndex(number))
	}
	return next, err
}

// startNext starts a store, if there is one.
func (c *Collection) startNext(next *store, err error) error {
	if next == nil || err != nil {
		return err
	}
	c.logger.Warn("building an index from the queue; it takes over when it is complete", "index", next.number.path(c.dir))
	c.setNext(next)
	next.start()
	return nil
}

// isDamage reports whether an error of opening or reading an index means that the index is
// damaged or unreadable, or that its position is invalid, so that it has to be rebuilt from
// the queue.
func isDamage(err error) bool {
	return errors.Is(err, lsm.ErrCorrupt) || errors.Is(err, lsm.ErrUnreadable) || errors.Is(err, queue.ErrCorrupt)
}

// discardNext closes and deletes the store that is being built.
func (c *Collection) discardNext(next *store, reason string) error {
	c.setNext(nil)
	c.logger.Warn("the replacement is discarded", "queue", hex.EncodeToString(next.queueID.Load()[:]), "reason", reason)
	return errors.CombineErrors(next.close(), c.removeIndex(next.number))
}

// takeOver makes the next store the served one, and closes and deletes the old one.
func (c *Collection) takeOver(next *store) error {
	if err := next.index.Flush(); err != nil { // from here on it survives a power loss
		return err
	}
	before := c.serving.Load()
	if err := c.exchange(before, next); err != nil {
		return err
	}
	c.setNext(nil)
	id := next.queueID.Load()
	c.logger.Info("serving another index", "index", next.number.path(c.dir), "queue", hex.EncodeToString(id[:]))
	err := errors.CombineErrors(before.close(), c.removeIndex(before.number))
	if c.options.Quarantine && *before.queueID.Load() != *id {
		err = errors.CombineErrors(err, c.options.FS.RemoveAll(filepath.Join(c.queueDir, ReplacedDir)))
	}
	return err
}

// errEndsEarly: the end of a file was lost, which will be copied again.
var errEndsEarly = errors.New("the rebuilt index lacks entries of the served one, whose bytes are not here; it waits for them")

// exchange makes next the served store if it includes the entries that the served one includes:
// a document that was found must not be missing later, and a deleted one not be there again. It
// waits for them while the tail of the served store runs, for maxTakeOverWait.
func (c *Collection) exchange(serving, next *store) error {
	serving.indexing.Lock() // its tail waits
	defer serving.indexing.Unlock()
	position := serving.indexing.state.position
	if position.Queue == *next.queueID.Load() && !serving.health.historyChanged() {
		includes := func() bool { return next.health.mu.tail.position.Next.Compare(position.Next) >= 0 }
		wait := maxTakeOverWait
		if !serving.health.continues.Load() {
			wait = 0
		}
		ctx, cancel := context.WithTimeout(c.alive, wait)
		defer cancel()
		if err := next.health.waitUntil(ctx, includes); err != nil {
			return errEndsEarly
		}
	}
	if err := writeServing(c.options.FS, c.dir, next.number); err != nil {
		return err
	}
	c.serving.Store(next)
	return nil
}

// removeIndex deletes an index. The rename makes the deletion atomic.
func (c *Collection) removeIndex(n indexNumber) error {
	path := n.path(c.dir)
	err := c.options.FS.Rename(path, path+removedExtension)
	if err == nil {
		err = c.options.FS.SyncDir(c.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	verified, failed := n.verifiedPath(c.dir), error(nil)
	for _, file := range []string{verified, verified + vfs.TmpSuffix} {
		if err := c.options.FS.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
	}
	return errors.CombineErrors(failed, c.removeLeftovers())
}

// replacement describes the store that is being built, nil if there is none.
func (c *Collection) replacement() *Replacement {
	next := c.next()
	if next == nil {
		return nil
	}
	status := next.status()
	return &Replacement{
		Queue: *next.queueID.Load(), TailedBytes: status.TailedBytes, PresentBytes: status.PresentBytes, Faults: status.Faults,
	}
}

// cannotComplete reports whether tailing cannot complete the index of a store. A fork must
// persist for minRebuildPause, because files of a queue may be in the middle of an
// exchange.
func (s *store) cannotComplete(now time.Time) bool {
	if s.indexDamaged() || s.health.stopped(isTruncation) {
		return true
	}
	return s.health.forkedFor(minRebuildPause, now)
}

// isFork reports whether an error says that the queue here and the index have different
// histories.
func isFork(err error) bool {
	return errors.Is(err, queue.ErrForked) || errors.Is(err, queue.ErrDiverged)
}

// isTruncation reports whether an error says that the index holds entries that were
// truncated.
func isTruncation(err error) bool { return errors.Is(err, queue.ErrTruncated) }

// indexDamaged reports whether damage was found in the index since it was opened, by a
// lookup, a scan, the scrub or a merge. It records the damage found by a merge.
func (s *shared) indexDamaged() bool {
	if problem := s.index.Stats().Problem; errors.Is(problem, lsm.ErrCorrupt) || errors.Is(problem, lsm.ErrUnreadable) {
		s.recordFault(indexError(problem), queue.Address{})
	}
	return s.health.indexDamaged()
}
