package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"docstore/cmd/internal/records"
	"docstore/queue"
)

// maxRecordBytes is the largest record that is read: one whose document is in
// base64, with a long id and an expiry.
const maxRecordBytes = (queue.MaxDocumentBytes+2)/3*4 + 2*queue.MaxIDBytes + 1<<10

const (
	batchBytes  = 256 << 10 // of records fill a batch
	maxIdle     = 1 << 20   // a batch's buffer over this is not kept for another
	batchesWait = 4         // read ahead of the writer, parsed or not
)

// item is what one record asks for.
type item struct {
	text    []byte // the record, in its batch
	entry   records.Entry
	at      cursor // behind the record
	problem error  // what is wrong with the record; there is no entry then
}

// batch is records on their way from the reader by a parser to the writer. It
// belongs to one of them at a time.
type batch struct {
	in     *input
	items  []item
	start  int64 // offset in the input before the first record
	room   []byte
	err    error         // reading ended with it, behind the items
	parsed chan struct{} // receives when the items have their entries; has room for that
}

// producer makes items of the records of all inputs, one input after the other,
// while earlier ones are appended:
//
//	        batches, to whichever is free
//	reader ------------------------------> parsers
//	   |                                      | parsed
//	   |   the same batches, in order         v
//	   +----------------------------------> writer
//
// One goroutine reads, since where a record ends is known when it has been read;
// what is in it is found by several. The writer takes the batches as they were
// read, each when it has been parsed, and so all is as if one goroutine did it.
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

// start begins to read. The function that it returns ends that. It waits for
// the end, unless a pipe is read: there a read may never return, and the
// goroutines end with the process or the pipe.
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
			// What is left is not wanted; the channel closes with the goroutines.
		}
	}
}

// run sends the records of the inputs until they end, an input cannot be read,
// or ctx ends.
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

// read sends the records of one input, and of those that follow it under its
// name. It is false if nothing is to be read any more.
func (p *producer) read(ctx context.Context, in *input) bool {
	if in.format == formatFiles {
		return p.readDirectory(ctx, in)
	}
	if in.follow {
		in.lookout = newLookout(in.name, followInterval)
		defer in.lookout.close() // that of its successors, too
	}
	for {
		if !p.readFile(ctx, in) {
			return false
		}
		if !in.follow {
			return true
		}
		next, err := in.successor(ctx)
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
	defer func() { _ = stream.Close() }() // what it has to tell, reading has told
	at := in.from
	for {
		b := p.newBatch(in)
		b.start = at.Offset
		b.err = p.fill(b, stream, &at)
		ended := errors.Is(b.err, io.EOF)
		if ended {
			b.err = nil
		} else if b.err != nil {
			b.err = fmt.Errorf("reading behind %s: %w", in.place(at), b.err)
		}
		failed := b.err != nil // the batch is not ours any more once it is sent
		if !p.sendToParse(ctx, b) || failed {
			return false
		}
		if ended {
			return true
		}
	}
}

// fill reads records into a batch until it is full, the stream ends, or more
// may be long in coming.
func (p *producer) fill(b *batch, stream *records.Stream, at *cursor) error {
	for len(b.room) < p.batchBytes {
		record, err := stream.Next()
		if err != nil {
			return err
		}
		text := b.keep(record.Text) // at once: to tell whether it ends, the stream may read on
		at.moveBehind(record, b.in.head)
		at.AtEnd = b.in.atEnd(stream, at.Offset)
		b.items = append(b.items, item{text: text, at: *at, problem: record.Problem})
		if b.in.live() && !stream.Waiting() {
			return nil
		}
	}
	return nil
}

// moveBehind makes the cursor the place behind a record of a file whose first
// bytes are given. It samples nothing beyond that place: what comes behind it
// may still be changed, as a bad line has to be.
func (c *cursor) moveBehind(record records.Record, head []byte) {
	c.Offset, c.Lines, c.NoNewline = record.End, record.Number, !record.Newline
	if int(c.Head.Bytes) < len(head) {
		c.Head = sampleOf(head[:min(c.Offset, int64(len(head)))])
	}
}

// keep copies bytes into the batch's room. When the room moves to grow, earlier
// slices keep the old one alive.
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

// recycle gives a batch back whose slices nobody needs any more.
func (p *producer) recycle(b *batch) {
	if cap(b.room) > maxIdle {
		return
	}
	select {
	case p.emptied <- b:
	default:
	}
}

// sendToParse has a batch parsed and sends it. It is false if nobody wants more.
func (p *producer) sendToParse(ctx context.Context, b *batch) bool {
	return offer(ctx, p.unparsed, b) && offer(ctx, p.filled, b)
}

// send sends a batch whose items have their entries.
func (p *producer) send(ctx context.Context, b *batch) bool {
	b.parsed <- struct{}{}
	return offer(ctx, p.filled, b)
}

// sendError sends why nothing more is read, and is false.
func (p *producer) sendError(ctx context.Context, in *input, err error) bool {
	b := p.newBatch(in)
	b.err = err
	p.send(ctx, b)
	return false
}

// offer is false if ctx ends: a batch's error is most likely that, and no news.
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
