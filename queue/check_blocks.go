package queue

import "errors"

// blockCheck is a block whose documents are verified by a goroutine while the checker
// reads the following frames.
type blockCheck struct {
	block  block
	offset int64
	done   chan struct{} // receives when the fields below are set
	bad    []*CorruptionError
	err    error
}

// startBlock verifies the documents of the block at offset, which it takes over: b is
// another, empty block afterwards. The results for it and for earlier blocks are reported
// in order, now or by finishBlocks.
func (c *checker) startBlock(s *segmentFile, b *block, offset int64) error {
	k := &blockCheck{done: make(chan struct{}, 1)}
	if n := len(c.spare); n > 0 {
		k, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	k.block, *b = *b, k.block
	k.offset = offset
	c.blocks = append(c.blocks, k)
	decoder := c.decoder
	verify := func() {
		k.bad, k.err = s.checkDocuments(&k.block, offset, decoder)
		if errors.Is(k.err, errIncomplete) {
			k.bad, k.err = []*CorruptionError{s.corruption(offset, errors.New("file was cut while it was read"))}, nil
		}
		k.done <- struct{}{}
	}
	if c.atOnce == 0 {
		verify()
	} else {
		go verify()
	}
	return c.finishBlocks(c.atOnce)
}

// finishBlocks reports the results of blocks until at most left are being verified.
func (c *checker) finishBlocks(left int) error {
	for len(c.blocks) > left {
		k := c.blocks[0]
		<-k.done
		c.blocks = c.blocks[1:]
		c.spare = append(c.spare, k)
		if k.err != nil {
			return k.err
		}
		c.report.add(&k.block)
		c.damage(k.bad...)
		c.read(k.block.size())
	}
	return nil
}

// dropBlocks waits for the blocks being verified and discards their results.
func (c *checker) dropBlocks() {
	for _, k := range c.blocks {
		<-k.done
		c.spare = append(c.spare, k)
	}
	c.blocks = nil
}

// add counts a block.
func (r *Report) add(b *block) {
	r.Blocks++
	r.Entries += int64(b.count)
	for i := range b.count {
		switch e := b.entry(i); {
		case e.deleted():
			r.Deletes++
		case e.lost():
			r.Lost++
			fallthrough
		default:
			r.Documents++
		}
	}
}
