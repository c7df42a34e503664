package docservice

import (
	"context"
	"encoding/hex"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// Succession. An ingest host that is built anew makes another queue, with an id of
// its own and other documents at the same addresses. When its first segment stands
// in the directory in the place of ours, it is indexed beside what is served, and
// takes over once it has been read to the end of what is here. Until then the queue
// of before is served as far as its bytes are there: nothing of the other one passes
// for it, since its reader is bound to its id.
//
// Who lets another queue in moves the files of the one before to ReplacedDir first,
// as docstore-sync does: then nothing is missing meanwhile. It is removed with the
// index of before.
//
//	   in the directory      in ReplacedDir     served from     indexed beside
//	1  A's files                                A's files
//	2  being moved           some of A's        what is open
//	3  B's files             A's files          ReplacedDir     B
//	4  B's files             removed            B's files
//
// An index that is found to be damaged is succeeded in the same way, by one that is
// made anew of the same queue, while what can be read of it is served.
//
// Every change of a name in this leaves what a daemon that is started then makes out
// by the ids alone: index-0001 with A's position is what is served, index-0002 what
// comes. It takes over in the moment when index-0001 is renamed.

// ReplacedDir is where in a queue's directory the files of the queue lie whose place
// another one has taken.
const ReplacedDir = ".replaced"

// A damaged index is rebuilt at once, unless the one before it was rebuilt within the last
// minRebuildPause. Every further rebuild doubles that time, up to maxRebuildPause: a disk
// that damages each index must not spend its life on building them, and a machine with a
// damaged index is not ready until it is rebuilt.
const (
	minRebuildPause = time.Minute
	maxRebuildPause = time.Hour
)

// rebuildPace says when an index may be built again because the one before failed.
type rebuildPace struct {
	last  time.Time // zero: never
	pause time.Duration
}

// allow reports whether an index may be rebuilt now, and counts that it is.
func (p *rebuildPace) allow(now time.Time) bool {
	rested := now.Sub(p.last)
	switch {
	case p.last.IsZero() || rested >= 2*maxRebuildPause:
		p.pause = minRebuildPause
	case rested < p.pause:
		return false
	default:
		p.pause = min(2*p.pause, maxRebuildPause)
	}
	p.last = now
	return true
}

// Successor is another queue that has come in the place of the one that is served,
// and is being indexed; or the same, whose index was damaged and is made anew.
type Successor struct {
	Queue [16]byte // its id
	// TailedBytes of the PresentBytes of its segments are in its index.
	TailedBytes, PresentBytes int64
	// Faults are what keeps it from being read.
	Faults []Fault
}

// runSuccession looks from time to time which queue the directory holds.
func (c *Collection) runSuccession(ctx context.Context) {
	problem := ""
	for sleep(ctx, c.options.RetryInterval) {
		err := c.succeed()
		switch {
		case err == nil:
			problem = ""
		case ctx.Err() == nil && err.Error() != problem:
			problem = err.Error()
			c.logger.Error("the next index cannot be built or cannot take over; trying again", "error", err)
		}
	}
}

// succeed takes the next step, if there is one.
func (c *Collection) succeed() error {
	serving, next := c.serving.Load(), c.next()
	id := serving.queueID.Load()
	if id == nil {
		return nil // whichever comes is the one
	}
	here, err := c.queueIn(c.queueDir)
	if err != nil {
		return err
	}
	ours, theirs := here == *id, here != *id && here != [16]byte{}
	if err := c.follow(serving, ours); err != nil {
		return err
	}
	switch {
	case next != nil && (ours || theirs) && here != *next.queueID.Load():
		return c.discardNext(next, "it has gone again")
	case next != nil && next.isUseless(c.options.Now()) && c.discards.allow(c.options.Now()):
		return c.discardNext(next, "its index cannot be completed")
	case next == nil && theirs:
		c.logger.Warn("another queue has come; it is served when it has been read to its end",
			"dir", c.queueDir, "queue", hex.EncodeToString(here[:]), "serving", hex.EncodeToString(id[:]))
		return c.openNext(serving, here)
	case next == nil && ours && serving.stopped(isTruncation):
		return c.openNext(serving, here)
	case next == nil && ours && serving.indexDamaged() && !serving.stopped(isFork) && c.rebuilds.allow(c.options.Now()):
		c.logger.Error("the index is damaged and is rebuilt from the queue; what can be read of it is served until then",
			"index", serving.number.path(c.dir))
		return c.openNext(serving, here)
	case next == nil && ours && c.rebuilding:
		c.rebuilding = false
		return c.resumeRebuild(serving, here)
	case next != nil && next.gap.Load() == nil:
		return c.takeOver(next)
	}
	return nil
}

// queueIn returns the id of the queue that the first segment in a directory is of,
// zero where there is none, or none whose header can be read.
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

// follow has what is served be read where its files are.
func (c *Collection) follow(serving *store, here bool) error {
	dir := c.queueDir
	if !here {
		dir = filepath.Join(c.queueDir, ReplacedDir)
		if id, err := c.queueIn(dir); err != nil || id != *serving.queueID.Load() {
			return err // it is nowhere else
		}
	}
	if dir == serving.queueDir {
		return nil
	}
	moved, err := c.newStore(serving.number, serving.index, dir, serving.tailState().position)
	if err != nil {
		return err
	}
	moved.inherit(serving)
	c.serving.Store(moved)
	err = serving.leaveQueue()
	moved.inherit(serving) // what the tail has added until it ended
	moved.start()
	c.logger.Info("the queue that is served lies elsewhere now", "dir", dir)
	return err
}

// inherit takes over the state of the store that has read the same queue elsewhere.
func (s *store) inherit(from *store) {
	from.mu.Lock()
	tail, reached, faults := from.mu.tail, from.mu.reached, from.mu.faults
	from.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tail, s.mu.reached = tail, reached
	s.mu.tail.current = false
	s.mu.faults.index, s.mu.faults.lost = faults.index, faults.lost
	s.stateChanged()
}

// next is the store that is to take over, nil if there is none.
func (c *Collection) next() *store {
	c.succession.Lock()
	defer c.succession.Unlock()
	return c.succession.next
}

func (c *Collection) setNext(next *store) {
	c.succession.Lock()
	defer c.succession.Unlock()
	c.succession.next = next
}

// openNext starts to build the index that follows the served one, of the queue with the
// id, or resumes to.
func (c *Collection) openNext(serving *store, id [16]byte) error {
	number := serving.number + 1
	next, err := c.partNext(number, id)
	if err == nil && next == nil {
		next, err = c.openStore(number, c.queueDir, id)
	}
	return c.startNext(next, err)
}

// resumeRebuild resumes the rebuild of an index that the last run of the daemon began: the
// damage may be where no lookup meets it again soon.
func (c *Collection) resumeRebuild(serving *store, id [16]byte) error {
	return c.startNext(c.partNext(serving.number+1, id))
}

// partNext opens an index, which may be partly built, for the queue with the id. It
// removes a damaged one and one of another queue, and then returns nil.
func (c *Collection) partNext(number indexNumber, id [16]byte) (*store, error) {
	next, err := c.openStore(number, c.queueDir, id)
	switch {
	case isDamage(err):
		return nil, c.removeIndex(number)
	case err == nil && *next.queueID.Load() != id:
		return nil, errors.CombineErrors(next.close(), c.removeIndex(number))
	}
	return next, err
}

// startNext has a store follow the queue, if there is one.
func (c *Collection) startNext(next *store, err error) error {
	if next == nil || err != nil {
		return err
	}
	c.logger.Warn("an index is built from the queue, to take over when it is complete", "index", next.number.path(c.dir))
	c.setNext(next)
	next.start()
	return nil
}

// isDamage reports whether an error of opening or reading an index is that it is damaged or
// cannot be read, or that its position is not one: another one is then built from the
// queue.
func isDamage(err error) bool {
	return errors.Is(err, lsm.ErrCorrupt) || errors.Is(err, lsm.ErrUnreadable) || errors.Is(err, queue.ErrCorrupt)
}

// discardNext gives up the store that is being indexed.
func (c *Collection) discardNext(next *store, reason string) error {
	c.setNext(nil)
	c.logger.Warn("the other queue is given up", "queue", hex.EncodeToString(next.queueID.Load()[:]), "reason", reason)
	return errors.CombineErrors(next.close(), c.removeIndex(next.number))
}

// takeOver has the next one serve in the place of the one before, and removes what
// that one leaves.
func (c *Collection) takeOver(next *store) error {
	if err := next.index.Flush(); err != nil { // now it takes power losses, too
		return err
	}
	before := c.serving.Load()
	c.serving.Store(next)
	c.setNext(nil)
	id := next.queueID.Load()
	c.logger.Info("another index is served from", "index", next.number.path(c.dir), "queue", hex.EncodeToString(id[:]))
	err := errors.CombineErrors(before.close(), c.removeIndex(before.number))
	if c.options.Quarantine && *before.queueID.Load() != *id {
		err = errors.CombineErrors(err, c.options.FS.RemoveAll(filepath.Join(c.queueDir, ReplacedDir)))
	}
	return err
}

// removeIndex removes an index, in one step as far as the next start is concerned.
func (c *Collection) removeIndex(n indexNumber) error {
	path := n.path(c.dir)
	err := c.options.FS.Rename(path, path+removedExtension)
	if err == nil {
		err = c.options.FS.SyncDir(c.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = c.options.FS.Remove(n.verifiedPath(c.dir))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.CombineErrors(err, removeLeftovers(c.options.FS, c.dir))
}

// successor describes the queue that is to take over, nil if there is none.
func (c *Collection) successor() *Successor {
	next := c.next()
	if next == nil {
		return nil
	}
	status := next.status()
	return &Successor{
		Queue: *next.queueID.Load(), TailedBytes: status.TailedBytes, PresentBytes: status.PresentBytes, Faults: status.Faults,
	}
}

// isUseless reports whether the index of a store cannot be completed by reading on. Files
// that do not belong together may be on their way to be exchanged, so that a fork has to
// last.
func (s *store) isUseless(now time.Time) bool {
	if s.indexDamaged() || s.stopped(isTruncation) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return isFork(s.mu.stoppedBy) && s.mu.faults.tail != nil && now.Sub(s.mu.faults.tail.Since) >= minRebuildPause
}

// stopped reports whether the tail is stopped by an error of a kind.
func (s *store) stopped(isKind func(error) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return isKind(s.mu.stoppedBy)
}

// isFork reports whether an error says that the queue here has another history than the
// index.
func isFork(err error) bool {
	return errors.Is(err, queue.ErrForked) || errors.Is(err, queue.ErrDiverged)
}

// isTruncation reports whether an error says that entries of the index were taken back.
func isTruncation(err error) bool { return errors.Is(err, queue.ErrTruncated) }

// indexDamaged reports whether damage has been found in the index since it was opened: by
// a lookup, a scan or the scrub, or by a merge, whose damage it records.
func (s *store) indexDamaged() bool {
	if problem := s.index.Stats().Problem; errors.Is(problem, lsm.ErrCorrupt) || errors.Is(problem, lsm.ErrUnreadable) {
		s.recordFault(indexError(problem), queue.Address{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.faults.index != nil
}
