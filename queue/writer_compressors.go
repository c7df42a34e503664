package queue

import (
	"runtime"
	"sync"

	"docstore/queue/internal/segment"
)

// compressors encode chunks in the background, one goroutine for each processor.
type compressors struct {
	chunks  chan *segment.Chunk
	running sync.WaitGroup
}

func startCompressors() *compressors {
	n := runtime.GOMAXPROCS(0)
	c := &compressors{chunks: make(chan *segment.Chunk, 2*n)}
	for range n {
		c.running.Go(func() {
			for chunk := range c.chunks {
				encodeChunk(chunk)
			}
		})
	}
	return c
}

func encodeChunk(c *segment.Chunk) {
	c.Encode()
	c.Block.Encoding.Done()
}

// compress encodes a chunk: in a compressor, or in this goroutine if they are busy.
func (c *compressors) compress(full *segment.Chunk) {
	full.Block.Encoding.Add(1)
	select {
	case c.chunks <- full:
	default:
		encodeChunk(full)
	}
}

// finish waits until all chunks of the block are encoded, and helps to encode them.
func (c *compressors) finish(b *segment.PendingBlock) {
	if last := b.Cut(0); last != nil {
		last.Encode()
	}
	for {
		select {
		case waiting := <-c.chunks:
			encodeChunk(waiting)
			continue
		default:
		}
		break
	}
	b.Encoding.Wait()
}

// stop ends the goroutines. Nothing may be compressed afterwards.
func (c *compressors) stop() {
	close(c.chunks)
	c.running.Wait()
}

// pendingBytes bounds the bytes of the blocks that were submitted and not written.
type pendingBytes struct {
	mu struct {
		sync.Mutex
		bytes int
	}
	less sync.Cond // signaled when bytes decreases
}

func newPendingBytes() *pendingBytes {
	p := &pendingBytes{}
	p.less.L = &p.mu
	return p
}

// add adds the bytes of a block. It waits while too much is pending.
func (p *pendingBytes) add(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mu.bytes > 0 && p.mu.bytes+bytes > maxPendingBytes {
		p.less.Wait()
	}
	p.mu.bytes += bytes
}

// remove removes the bytes of a block that was written or discarded.
func (p *pendingBytes) remove(bytes int) {
	p.mu.Lock()
	p.mu.bytes -= bytes
	p.mu.Unlock()
	p.less.Broadcast()
}
