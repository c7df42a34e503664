package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"docstore/internal/ndjson"
	"docstore/queue"
)

const (
	batchBytes  = 256 << 10 // ids and documents that fill a batch
	maxIdle     = 1 << 20   // a batch's buffer over this is not kept for another
	batchesWait = 2         // parsed ahead of the writer
)

// item is what one line asks for. The slices belong to its batch.
type item struct {
	id, document []byte
	deletes      bool
	expires      time.Time
	at           cursor // behind the line
	problem      error  // what is wrong with the line; nothing else is set but at
}

// batch is lines on their way from the reader to the writer.
type batch struct {
	in    *input
	items []item
	start int64 // offset in the input before the first line
	room  []byte
	err   error // reading ended with it, behind the items
}

// producer reads and parses lines, one input after the other, in a goroutine of
// its own, while others are appended.
type producer struct {
	stdin   io.Reader
	parser  *ndjson.Parser
	filled  chan *batch
	emptied chan *batch
	// complete is set before filled is closed: every input was read to its end.
	complete bool
}

func newProducer(stdin io.Reader, options *ndjson.Options) *producer {
	return &producer{
		stdin:   stdin,
		parser:  ndjson.NewParser(options),
		filled:  make(chan *batch, batchesWait),
		emptied: make(chan *batch, batchesWait+1),
	}
}

// start begins to read. The function that it returns ends that. It waits for
// the end, unless a pipe is read: there a read may never return, and the
// goroutine ends with the process or the pipe.
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
			// What is left is not wanted; the channel closes with the goroutine.
		}
	}
}

// run sends the lines of the inputs until they end, an input cannot be read, or
// ctx does.
func (p *producer) run(ctx context.Context, inputs []*input) {
	defer close(p.filled)
	for _, in := range inputs {
		if !p.read(ctx, in) {
			return
		}
	}
	p.complete = true
}

// read sends the lines of one input. It is false if that was the last.
func (p *producer) read(ctx context.Context, in *input) bool {
	file, err := in.open(p.stdin)
	if err != nil {
		return p.send(ctx, &batch{in: in, err: err}) && false
	}
	defer file.Close()
	lines := ndjson.NewReader(file, queue.MaxDocumentBytes, in.from.Offset, in.from.Lines)
	at := in.from
	for {
		b := p.newBatch(in)
		b.start = at.Offset
		for len(b.room) < batchBytes && b.err == nil {
			line, err := lines.Next()
			if err != nil {
				b.err = err
				break
			}
			at.moveBehind(line, in.head)
			at.AtEnd = in.stable && lines.AtEnd()
			b.items = append(b.items, p.parse(b, line, at))
			if !lines.Waiting() {
				break // more may take long to come: hand over what is there
			}
		}
		ended := errors.Is(b.err, io.EOF)
		if ended {
			b.err = nil
		} else if b.err != nil {
			b.err = fmt.Errorf("reading %s behind line %d: %w", in.name, at.Lines, b.err)
		}
		failed := b.err != nil // the batch is not ours any more once it is sent
		if !p.send(ctx, b) || failed {
			return false
		}
		if ended {
			return true
		}
	}
}

// moveBehind makes the cursor the place behind a line of a file whose first
// bytes are given. It samples nothing beyond that place: what comes behind it
// may still be changed, as a bad line has to be.
func (c *cursor) moveBehind(line ndjson.Line, head []byte) {
	c.Offset, c.Lines, c.NoNewline = line.End, line.Number, !line.Newline
	if int(c.Head.Bytes) < len(head) {
		c.Head = sampleOf(head[:min(c.Offset, int64(len(head)))])
	}
	c.Tail = sampleOf(line.Text[max(0, len(line.Text)-sampleBytes):])
}

// parse copies what a line asks for into the batch.
func (p *producer) parse(b *batch, line ndjson.Line, at cursor) item {
	if line.TooLong {
		return item{at: at, problem: fmt.Errorf("the document has over %d bytes, the limit", queue.MaxDocumentBytes)}
	}
	record, err := p.parser.Parse(line.Text)
	if err != nil {
		return item{at: at, problem: err}
	}
	it := item{at: at, deletes: record.Delete, expires: record.Expires, id: b.keep(record.ID)}
	if !it.deletes {
		it.document = b.keep(line.Text)
	}
	return it
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
		*b = batch{in: in, items: b.items[:0], room: b.room[:0]}
		return b
	default:
		return &batch{in: in, room: make([]byte, 0, batchBytes+batchBytes/4)}
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

// send is false if nobody wants more.
func (p *producer) send(ctx context.Context, b *batch) bool {
	select {
	case p.filled <- b:
		return true
	case <-ctx.Done():
		return false
	}
}
