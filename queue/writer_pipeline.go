package queue

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// maxPendingBytes bounds the ids and documents that have yet to be written, unless a
// single block is larger. In compressed form they take at most as much again.
const maxPendingBytes = 8 << 20

// maxPendingSteps bounds the steps that have yet to be taken.
const maxPendingSteps = 256

// pipeline compresses and writes the blocks of a Writer in the background:
//
//	         chunks, in any order
//	Writer -----------------------> compressors, one for each processor
//	  |                                 | a block's chunks are done
//	  |  steps, in order                v
//	  +---------------------------> committer -----> segment's file
//
// Invariants:
//
//   - Only the committer accesses the files. It takes the steps in the order in which they
//     were submitted, which is the order in the file. It writes a commit mark or footer
//     after everything submitted before it is durable.
//   - A block is submitted after it is encoded, when its size and therefore the address of
//     the next block are known. So the committer waits only for the disk, and blocks
//     are filled and compressed meanwhile.
//   - A chunk with everything it refers to belongs to one goroutine at a time: the sender
//     does not use it afterwards.
//   - The first error is final: no step is taken after it, and it is the result of all
//     later steps.
//
// submit is called by one goroutine at a time.
type pipeline struct {
	compressors *compressors  // of the group, if there is one
	pending     *pendingBytes // of the group, if there is one
	group       bool
	steps       chan step
	running     sync.WaitGroup
	failure     atomic.Pointer[error]
	describe    func(error) error // makes the final error from the first one
}

// step is an operation of the committer: at most one of the first six fields is set.
type step struct {
	begin *segmentStart         // create the next segment
	block *segment.PendingBlock // write it
	mark  bool                  // make all blocks durable and write a commit mark
	seal  bool                  // end the segment, if one is open, and make the head durable
	// uncommitted and committed begin and end the blocks of a transaction.
	uncommitted, committed bool
	// done receives the result of this and all previous steps. It must be buffered. Nil:
	// no result is needed.
	done chan<- error
}

// segmentStart describes the start of a segment.
type segmentStart struct {
	header     segment.Header // but for the digest of the segment before
	dictionary []byte
}

// startPipeline starts a pipeline that writes after the segments in the head. describe
// makes the error that calls return from the first failure.
func startPipeline(head *headFile, o *WriterOptions, describe func(error) error) *pipeline {
	p := &pipeline{steps: make(chan step, maxPendingSteps), describe: describe}
	if o.Group != nil {
		p.group, p.compressors, p.pending = true, o.Group.compressors, o.Group.pending
	} else {
		p.compressors, p.pending = startCompressors(), newPendingBytes()
	}
	c := &committer{head: head, synced: o.Synced, headInterval: headInterval}
	if p.group {
		c.headInterval = headGroupInterval
	}
	p.running.Go(func() { p.commit(c) })
	return p
}

// submit queues a step. It waits while too much is pending.
func (p *pipeline) submit(s step) {
	if s.block != nil {
		p.pending.add(s.block.RawBytes)
	}
	p.steps <- s
}

// fail makes err the final error unless there is one, and returns the final error.
func (p *pipeline) fail(err error) error {
	err = p.describe(err)
	p.failure.CompareAndSwap(nil, &err)
	return p.failed()
}

// failed returns the final error, or nil.
func (p *pipeline) failed() error {
	if err := p.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// commit takes steps until the channel is closed. While it is idle it refreshes the head,
// unless it is in a group.
func (p *pipeline) commit(c *committer) {
	idle := time.NewTicker(headIdleInterval)
	defer idle.Stop()
	if p.group {
		idle.Stop()
	}
	for {
		select {
		case s, ok := <-p.steps:
			if !ok {
				c.close()
				return
			}
			p.takeStep(c, s)
		case <-idle.C:
			if p.failed() == nil {
				if err := c.head.refresh(headIdleInterval); err != nil {
					_ = p.fail(err) // all later calls return it
				}
			}
		}
	}
}

// takeStep takes a step unless an earlier one has failed.
func (p *pipeline) takeStep(c *committer, s step) {
	err := p.failed()
	if err == nil {
		if err = c.take(s); err != nil {
			err = p.fail(err)
		}
	}
	if s.block != nil {
		p.pending.remove(s.block.RawBytes)
		s.block.Release()
	}
	if s.done != nil {
		s.done <- err
	}
}

// stop ends the pipeline after the submitted steps. Nothing may be submitted or
// compressed afterwards.
func (p *pipeline) stop() {
	if !p.group {
		p.compressors.stop()
	}
	close(p.steps)
	p.running.Wait()
}

// committer takes the steps of a pipeline. It owns the file of the open segment and the
// head.
type committer struct {
	head    *headFile
	segment *segment.Writer // nil: none is open
	synced  func(took time.Duration)
	// headInterval is the minimum time between two heads that are written because of commits.
	headInterval time.Duration
}

func (c *committer) take(s step) error {
	switch {
	case s.begin != nil:
		return c.begin(s.begin)
	case s.block != nil:
		room := segment.GetScratch()
		defer room.Release()
		room.Bytes = s.block.Bytes(room.Bytes, c.segment.Chain)
		return c.segment.WriteBlock(s.block.At, room.Bytes)
	case s.mark:
		if err := c.segment.Commit(); err != nil {
			return err
		}
		c.head.committed(c.segment)
		return c.head.refresh(c.headInterval)
	case s.seal:
		return c.seal()
	case s.uncommitted:
		return c.uncommitted()
	case s.committed:
		return c.committed()
	}
	return nil
}

// uncommitted begins a transaction. The last commit mark is made durable, because without it the
// next Writer would also discard the blocks before it.
func (c *committer) uncommitted() error {
	if err := c.sync(); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(c.head.fs, filepath.Join(c.head.dir, uncommittedName), nil)
}

// committed makes the blocks of a transaction durable before the file that says that they are
// uncommitted is removed, which comes before they are marked as committed: a reader must not see
// entries that the next Writer discards.
func (c *committer) committed() error {
	if err := c.sync(); err != nil {
		return err
	}
	return removeUncommitted(c.head.fs, c.head.dir)
}

// sync makes the open segment durable.
func (c *committer) sync() error {
	if c.segment == nil {
		return nil
	}
	return c.segment.Sync()
}

// begin creates a segment. A durable head states its number before the segment has any
// block.
func (c *committer) begin(b *segmentStart) error {
	b.header.Previous = c.head.Digest
	var err error
	if c.segment, err = segment.Create(c.head.fs, c.head.dir, b.header, b.dictionary); err != nil {
		return err
	}
	c.segment.Synced = c.synced
	c.head.Highest = b.header.Segment
	return c.head.save(true)
}

func (c *committer) seal() error {
	if s := c.segment; s != nil {
		c.segment = nil
		footer, err := s.Seal()
		if err != nil {
			return err
		}
		c.head.committed(s)
		c.head.Sealed, c.head.Digest = footer.Segment, footer.Digest()
	} else if c.head.durable || c.head.Highest == 0 {
		return nil
	}
	return c.head.save(true)
}

func (c *committer) close() {
	if c.segment != nil {
		c.segment.Close()
	}
}
