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

// rebuildPause is the least time between two indexes made anew because the one before
// was damaged: on a disk that damages each there is no end to it.
const rebuildPause = time.Hour

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
			c.logger.Error("another queue cannot take the place of the one served", "error", err)
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
		return c.discardNext(next)
	case next == nil && theirs:
		c.logger.Warn("another queue has come; it is served when it has been read to its end",
			"dir", c.queueDir, "queue", hex.EncodeToString(here[:]), "serving", hex.EncodeToString(id[:]))
		return c.openNext(serving, here)
	case next == nil && ours && serving.indexDamaged() && (c.rebuilt.IsZero() || c.options.Now().Sub(c.rebuilt) >= rebuildPause):
		c.rebuilt = c.options.Now()
		c.logger.Error("the index is damaged and is made anew from the queue; what can be read of it is served until then",
			"index", serving.number.path(c.dir))
		return c.openNext(serving, here)
	case next != nil && next.following.Load():
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
	moved.following.Store(serving.following.Load())
	c.serving.Store(moved)
	err = serving.leaveQueue()
	moved.mu.Lock()
	moved.mu.tail = serving.tailState()
	moved.mu.tail.current = false
	moved.mu.Unlock()
	moved.start()
	c.logger.Info("the queue that is served lies elsewhere now", "dir", dir)
	return err
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

// openNext starts to index the queue with the id beside what is served, or goes on.
func (c *Collection) openNext(serving *store, id [16]byte) error {
	number := serving.number + 1
	next, err := c.openStore(number, c.queueDir, id)
	if err != nil {
		return err
	}
	if *next.queueID.Load() != id { // of a third one, before a restart
		if err := errors.CombineErrors(next.close(), c.removeIndex(number)); err != nil {
			return err
		}
		if next, err = c.openStore(number, c.queueDir, id); err != nil {
			return err
		}
	}
	c.setNext(next)
	next.start()
	return nil
}

// discardNext gives up a queue that is not there any more.
func (c *Collection) discardNext(next *store) error {
	c.setNext(nil)
	c.logger.Warn("the other queue has gone again", "queue", hex.EncodeToString(next.queueID.Load()[:]))
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

// indexDamaged tells whether reading the index, or merging its tables, has found
// damage since it was opened.
func (s *store) indexDamaged() bool {
	s.mu.Lock()
	found := s.mu.faults.index != nil
	s.mu.Unlock()
	return found || errors.Is(s.index.Stats().Problem, lsm.ErrCorrupt)
}
