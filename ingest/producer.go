package ingest

import (
	"context"
	"sync"

	"docstore/internal/eof"
)

// batchesWait is the number of batches read ahead of the writer.
const batchesWait = 4

// parsedBatch is a batch on the way from the source through a parser to the writer. One of them
// owns it at a time.
type parsedBatch struct {
	*Batch               // nil with err
	err    error         // ended reading
	parsed chan struct{} // capacity 1: receives when the records have been parsed
	known  []known       // of Replace
}

// producer reads and parses the records of a source, while earlier ones are appended:
//
//	        batches, to any free parser
//	reader ------------------------------> parsers
//	   |                                      | parsed
//	   |   the same batches, in order         v
//	   +----------------------------------> writer
//
// One goroutine reads, because the end of a record is known only when it has been read;
// several parse. The writer takes the batches in the order of reading, each after it has
// been parsed, so the result is that of a single goroutine.
type producer struct {
	source   Source
	parsing  []Parsing // of each source
	unparsed chan *parsedBatch
	filled   chan *parsedBatch
	parse    func(*Parser, *parsedBatch) // by a parser
	// complete is set before filled is closed: the source was read to its end.
	complete bool
}

func newProducer(from Source, of []Parsing) *producer {
	return &producer{
		source: from, parsing: of, parse: func(p *Parser, b *parsedBatch) { p.Parse(b.Batch) },
		unparsed: make(chan *parsedBatch, batchesWait), filled: make(chan *parsedBatch, batchesWait),
	}
}

// start starts to read. The function that it returns stops reading and waits for the
// goroutines.
func (p *producer) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run sends the records of the source until it ends, reading fails, or ctx ends.
func (p *producer) run(ctx context.Context) {
	defer close(p.filled)
	defer p.startParsers()()
	for {
		records, err := p.source.Next(ctx)
		b := &parsedBatch{Batch: records, err: err, parsed: make(chan struct{}, 1)}
		switch {
		case eof.Is(err):
			p.complete = true
			return
		case err != nil:
			b.parsed <- struct{}{}
			offer(ctx, p.filled, b)
			return
		case !offer(ctx, p.unparsed, b) || !offer(ctx, p.filled, b):
			return
		}
	}
}

// offer sends a batch. It returns false if ctx ended; an error of the batch is then
// probably that of ctx.
func offer(ctx context.Context, to chan<- *parsedBatch, b *parsedBatch) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case to <- b:
		return true
	case <-ctx.Done():
		return false
	}
}
