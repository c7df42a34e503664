package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"docstore/cmd/internal/records"
	"docstore/queue"
)

// maxRecordBytes is the maximum size of a record: a document in base64 with a long id and
// an expiry.
const maxRecordBytes = (queue.MaxDocumentBytes+2)/3*4 + 2*queue.MaxIDBytes + 1<<10

const (
	batchBytes  = 256 << 10 // size of a full batch
	maxIdle     = 1 << 20   // a larger buffer is not reused
	batchesWait = 4         // batches read ahead of the writer
)

// item is the entry that one record requests.
type item struct {
	text    []byte // the record, in its batch
	entry   records.Entry
	at      cursor // after the record
	problem error  // why the record is invalid; there is no entry then
}

// batch is a batch of records on the way from the reader through a parser to the writer.
// One of them owns it at a time.
type batch struct {
	in     *input
	items  []item
	start  int64 // offset in the input before the first record
	room   []byte
	err    error         // ended reading, after the items
	parsed chan struct{} // capacity 1: receives when the items have been parsed
}

// producer converts the records of all inputs to items, one input after the other, while
// earlier items are appended:
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
	stdin      io.Reader
	options    *records.Options
	batchBytes int
	unparsed   chan *batch
	filled     chan *batch
	emptied    chan *batch
	// complete is set before filled is closed: every input was read to its end.
	complete bool
}

func newProducer(stdin io.Reader, options *records.Options) *producer {
	return &producer{
		stdin:      stdin,
		options:    options,
		batchBytes: batchBytes,
		unparsed:   make(chan *batch, batchesWait),
		filled:     make(chan *batch, batchesWait),
		emptied:    make(chan *batch, batchesWait+2),
	}
}

// start starts to read. The function that it returns stops reading and waits for the
// goroutines, unless a pipe is read: a read from it may never return, and the goroutines
// end with the pipe or the process.
func (p *producer) start(ctx context.Context, inputs []*input) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go p.run(ctx, inputs)
	return func() {
		cancel()
		for _, in := range inputs {
			if !in.stable {
				return
			}
		}
		for range p.filled {
			// Discard the remaining batches; the channel is closed by the goroutines.
		}
	}
}

// run sends the records of the inputs until they end, reading fails, or ctx ends.
func (p *producer) run(ctx context.Context, inputs []*input) {
	defer close(p.filled)
	defer p.startParsers()()
	for _, in := range inputs {
		if !p.read(ctx, in) {
			return
		}
	}
	p.complete = true
}

// read sends the records of one input, and of the files that replace it. It returns false
// if reading is to stop.
func (p *producer) read(ctx context.Context, in *input) bool {
	if in.format == formatFiles {
		return p.readDirectory(ctx, in)
	}
	if in.follow {
		in.fileWatcher = newFileWatcher(in.name, followInterval)
		defer in.fileWatcher.close() // also that of its replacements
	}
	for {
		if !p.readFile(ctx, in) {
			return false
		}
		if !in.follow {
			return true
		}
		next, err := in.nextFile(ctx)
		if err != nil {
			return p.sendError(ctx, in, err)
		}
		in = next
	}
}

func (p *producer) readFile(ctx context.Context, in *input) bool {
	stream, file, err := in.open(ctx, p.stdin, p.options)
	if err != nil {
		return p.sendError(ctx, in, fmt.Errorf("opening %s: %w", in.name, err))
	}
	defer file.Close()
	defer func() { _ = stream.Close() }() // read errors were reported
	at := in.from
	for {
		b := p.newBatch(in)
		b.start = at.Offset
		b.err = p.fill(b, stream, &at)
		ended := errors.Is(b.err, io.EOF)
		if ended {
			b.err = nil
		} else if b.err != nil {
			b.err = fmt.Errorf("reading after %s: %w", in.place(at), b.err)
		}
		failed := b.err != nil // the batch must not be used after it is sent
		if !p.sendToParse(ctx, b) || failed {
			return false
		}
		if ended {
			return true
		}
	}
}

// fill reads records into a batch until it is full, the stream ends, or the next record may
// take long.
func (p *producer) fill(b *batch, stream *records.Stream, at *cursor) error {
	for len(b.room) < p.batchBytes {
		record, err := stream.Next()
		if err != nil {
			return err
		}
		text := b.keep(record.Text) // now: the stream may read more to detect its end
		at.moveAfter(record, b.in.head)
		at.AtEnd = b.in.atEnd(stream, at.Offset)
		b.items = append(b.items, item{text: text, at: *at, problem: record.Problem})
		if b.in.live() && !stream.Waiting() {
			return nil
		}
	}
	return nil
}

// moveAfter moves the cursor after a record of a file whose first bytes are head. It
// samples no bytes after that place, because they may change, as when an invalid line is
// corrected.
func (c *cursor) moveAfter(record records.Record, head []byte) {
	c.Offset, c.Lines, c.NoNewline = record.End, record.Number, !record.Newline
	if int(c.Head.Bytes) < len(head) {
		c.Head = sampleOf(head[:min(c.Offset, int64(len(head)))])
	}
}

// keep copies bytes into the batch's buffer. If the buffer is reallocated, earlier slices
// keep the old one.
func (b *batch) keep(bytes []byte) []byte {
	start := len(b.room)
	b.room = append(b.room, bytes...)
	return b.room[start:len(b.room):len(b.room)]
}

func (p *producer) newBatch(in *input) *batch {
	select {
	case b := <-p.emptied:
		*b = batch{in: in, items: b.items[:0], room: b.room[:0], parsed: b.parsed}
		return b
	default:
		return &batch{in: in, room: make([]byte, 0, p.batchBytes+p.batchBytes/4), parsed: make(chan struct{}, 1)}
	}
}

// recycle returns a batch whose slices are no longer used.
func (p *producer) recycle(b *batch) {
	if cap(b.room) > maxIdle {
		return
	}
	select {
	case p.emptied <- b:
	default:
	}
}

// sendToParse sends a batch to the parsers and the writer. It returns false if reading is
// to stop.
func (p *producer) sendToParse(ctx context.Context, b *batch) bool {
	return offer(ctx, p.unparsed, b) && offer(ctx, p.filled, b)
}

// send sends a parsed batch.
func (p *producer) send(ctx context.Context, b *batch) bool {
	b.parsed <- struct{}{}
	return offer(ctx, p.filled, b)
}

// sendError sends the error that ended reading, and returns false.
func (p *producer) sendError(ctx context.Context, in *input, err error) bool {
	b := p.newBatch(in)
	b.err = err
	p.send(ctx, b)
	return false
}

// offer sends a batch. It returns false if ctx ended; an error of the batch is then
// probably that of ctx.
func offer(ctx context.Context, to chan<- *batch, b *batch) bool {
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
