package queue

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// maxPendingBytes of ids and documents wait to be written at most, unless a
// single block has more; compressed they take no more than that once again.
const maxPendingBytes = 8 << 20

// maxPendingSteps wait to be taken at most.
const maxPendingSteps = 256

// pipeline brings what a Writer was given into files, while the Writer is given
// more:
//
//	         chunks, in any order
//	Writer -----------------------> compressors, one for each processor
//	  |                                 | a block's chunks are done
//	  |  steps, in order                v
//	  +---------------------------> committer -----> segment's file
//
// What holds:
//
//   - Only the committer touches the files. It takes the steps one by one in the
//     order in which they were submitted, so that is the order in the file, and
//     a commit mark or footer is written when everything submitted before it is
//     durable.
//   - A block is submitted when it is encoded: its size is known then, and with
//     it the address of the next one. So the committer waits for the disk only,
//     and blocks are filled and compressed while it does.
//   - A chunk, and with it all that it refers to, belongs to one goroutine at a
//     time: who sends it lets go of it.
//   - The first error is final. From then on no step is taken, and each one's
//     outcome is that error.
//
// compress, finish and submit are called by one goroutine at a time.
type pipeline struct {
	chunks   chan *chunk
	steps    chan step
	running  sync.WaitGroup
	failure  atomic.Pointer[error]
	describe func(error) error // makes the final error of the first one

	mu struct {
		sync.Mutex
		pending int // bytes of the blocks submitted and not written
	}
	written sync.Cond // pending has become less
}

// step is something for the committer to do: one of the first four, or nothing.
type step struct {
	begin *beginning    // make the next segment
	block *pendingBlock // write it
	mark  bool          // make all blocks durable and say so
	seal  bool          // end the segment, if one is open, and make the head durable
	// done receives the outcome of this and all steps before. It must have room
	// for it. Nil: nobody waits.
	done chan<- error
}

// beginning is how a segment begins.
type beginning struct {
	header     segmentHeader // but for the digest of the segment before
	dictionary *dictionary   // nil: none
}

// startPipeline begins to write behind the segments that the head states. describe
// makes the error that calls return of the first failure.
func startPipeline(head *headFile, describe func(error) error) *pipeline {
	compressors := runtime.GOMAXPROCS(0)
	p := &pipeline{
		chunks:   make(chan *chunk, 2*compressors),
		steps:    make(chan step, maxPendingSteps),
		describe: describe,
	}
	p.written.L = &p.mu
	for range compressors {
		p.running.Go(func() {
			for c := range p.chunks {
				encodeChunk(c)
			}
		})
	}
	p.running.Go(func() { p.commit(&committer{head: head}) })
	return p
}

func encodeChunk(c *chunk) {
	c.encode()
	c.block.encoding.Done()
}

// compress has a chunk encoded: by a compressor, or here if they have enough to
// do.
func (p *pipeline) compress(c *chunk) {
	c.block.encoding.Add(1)
	select {
	case p.chunks <- c:
	default:
		encodeChunk(c)
	}
}

// finish returns when all chunks of the block are encoded. It helps.
func (p *pipeline) finish(b *pendingBlock) {
	if last := b.cut(0); last != nil {
		last.encode()
	}
	for {
		select {
		case c := <-p.chunks:
			encodeChunk(c)
			continue
		default:
		}
		break
	}
	b.encoding.Wait()
}

// submit hands over a step. It waits while too much is pending.
func (p *pipeline) submit(s step) {
	if s.block != nil {
		p.mu.Lock()
		for p.mu.pending > 0 && p.mu.pending+s.block.rawBytes > maxPendingBytes {
			p.written.Wait()
		}
		p.mu.pending += s.block.rawBytes
		p.mu.Unlock()
	}
	p.steps <- s
}

// fail makes err the final error unless there is one, and returns that.
func (p *pipeline) fail(err error) error {
	err = p.describe(err)
	p.failure.CompareAndSwap(nil, &err)
	return p.failed()
}

// failed returns the final error, nil as long as there is none.
func (p *pipeline) failed() error {
	if err := p.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// commit takes the steps until there are no more. While there are none it writes
// the head now and then.
func (p *pipeline) commit(c *committer) {
	idle := time.NewTicker(headIdleInterval)
	defer idle.Stop()
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
					_ = p.fail(err) // every call returns it from now on
				}
			}
		}
	}
}

// takeStep has the committer take a step unless one has failed.
func (p *pipeline) takeStep(c *committer, s step) {
	err := p.failed()
	if err == nil {
		if err = c.take(s); err != nil {
			err = p.fail(err)
		}
	}
	if s.block != nil {
		p.mu.Lock()
		p.mu.pending -= s.block.rawBytes
		p.mu.Unlock()
		p.written.Signal()
		s.block.release()
	}
	if s.done != nil {
		s.done <- err
	}
}

// stop ends the pipeline when the steps submitted have been taken. Nothing may
// be submitted or compressed any more.
func (p *pipeline) stop() {
	close(p.chunks)
	close(p.steps)
	p.running.Wait()
}

// committer takes the steps of a pipeline. It owns the open segment's file and the
// head.
type committer struct {
	head    *headFile
	segment *segmentWriter // nil: none is open
	room    []byte         // for a block
}

func (c *committer) take(s step) error {
	switch {
	case s.begin != nil:
		return c.begin(s.begin)
	case s.block != nil:
		c.room = s.block.bytes(c.room, c.segment.chain)
		defer c.trim()
		return c.segment.writeBlock(s.block.at, c.room)
	case s.mark:
		if err := c.segment.commit(); err != nil {
			return err
		}
		c.head.committed(c.segment)
		return c.head.refresh(headInterval)
	case s.seal:
		return c.seal()
	}
	return nil
}

// begin makes a segment. Its number is stated by a durable head before it has any
// block.
func (c *committer) begin(b *beginning) error {
	b.header.previous = c.head.Digest
	var err error
	if c.segment, err = createSegment(c.head.fs, c.head.dir, b.header, b.dictionary); err != nil {
		return err
	}
	c.head.Highest = b.header.segment
	return c.head.save(true)
}

func (c *committer) seal() error {
	if s := c.segment; s != nil {
		c.segment = nil
		footer, err := s.seal()
		if err != nil {
			return err
		}
		c.head.committed(s)
		c.head.Sealed, c.head.Digest = footer.segment, footer.digest()
	} else if c.head.durable || c.head.Highest == 0 {
		return nil
	}
	return c.head.save(true)
}

// trim gives back the memory that a huge block needed.
func (c *committer) trim() {
	if cap(c.room) > 2*MaxBlockBytes {
		c.room = nil
	}
}

func (c *committer) close() {
	if c.segment != nil {
		c.segment.close()
	}
}
