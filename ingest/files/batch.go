package files

import (
	"fmt"
	"time"

	"docstore/ingest"
)

// batch is a batch with the cursors after its records.
type batch struct {
	ingest.Batch
	in      *input
	cursors []cursor
	lines   []int64 // of Record.Line
	room    []byte  // the texts of the records
	limit   int     // bytes of a full batch
	emptied chan<- *batch
}

func (s *Source) newBatch(in *input) *batch {
	var b *batch
	select {
	case b = <-s.emptied:
		clear(b.Records) // so that the collector can free decoded ids and documents
		b.Records, b.cursors, b.lines, b.room = b.Records[:0], b.cursors[:0], b.lines[:0], b.room[:0]
	default:
		b = &batch{room: make([]byte, 0, s.batchBytes+s.batchBytes/4), limit: s.batchBytes, emptied: s.emptied}
		b.AppendCursor, b.Included, b.Place, b.Release = b.appendCursor, b.included, b.place, b.release
	}
	b.in, b.Ends, b.Bytes, b.Oldest = in, !in.live() && (s.objects == nil || !s.options.Follow), 0, time.Time{}
	if !in.live() { // a file that grows has newer records
		b.Oldest = in.written
	}
	return b
}

// keep copies bytes into the batch's buffer. If the buffer is reallocated, earlier slices
// keep the old one.
func (b *batch) keep(bytes []byte) []byte {
	start := len(b.room)
	b.room = append(b.room, bytes...)
	return b.room[start:len(b.room):len(b.room)]
}

func (b *batch) add(record ingest.Record, after cursor, line int64) {
	b.Records = append(b.Records, record)
	b.lines = append(b.lines, line)
	b.cursors = append(b.cursors, after)
}

func (b *batch) full() bool { return len(b.room) >= b.limit }

func (b *batch) appendCursor(dst []byte, i int) []byte {
	if !b.in.stable {
		return dst
	}
	return b.cursors[i].append(dst)
}

func (b *batch) included(p ingest.Position, i int) bool {
	at, ours := p.(interface {
		includes(in *input, at *cursor) bool
	})
	return ours && at.includes(b.in, &b.cursors[i])
}

func (b *batch) place(i int) string {
	place := b.in.place(b.cursors[i])
	if b.lines[i] > 0 {
		place += fmt.Sprintf(", line %d", b.lines[i])
	}
	return place
}

func (b *batch) release() {
	if cap(b.room) > maxIdle {
		return
	}
	select {
	case b.emptied <- b:
	default:
	}
}
