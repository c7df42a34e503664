package queue

import (
	"context"

	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"
)

// Most tests are in package queue_test, because rewrites are made by package maintain, which
// imports this one. They need these names.
const (
	GroupDocuments  = groupDocuments
	ColdDocuments   = coldDocuments
	MaxPendingBytes = maxPendingBytes
)

func (r *Reader) Files() *segment.Cache             { return &r.files }
func (w *Writer) Trainer() *dictionary.Trainer      { return w.trainer }
func (w *Writer) Rewritten() *int64                 { return &w.mu.segment.rewritten }
func (w *Writer) SetLastRaw(bytes uint64)           { w.mu.lastRaw = bytes }
func (g *WriterGroup) Trainer() *dictionary.Trainer { return g.trainer }

// Settle waits until the files have every entry added so far.
func (w *Writer) Settle() error {
	done := make(chan error, 1)
	w.mu.Lock()
	w.pipeline.submit(step{done: done})
	w.mu.Unlock()
	return <-done
}

// Look is a Tail that does not wait.
type Look struct{ tail *tailer }

func NewLook(r *Reader, from Position) Look { return Look{newTailer(r, from)} }
func (l Look) Close()                       { l.tail.close() }
func (l Look) PlaceExists() bool            { return l.tail.placeExists() }

// Next delivers the next block; false: there is none yet.
func (l Look) Next(ctx context.Context, fn func(Entry) error) (bool, error) {
	b := &l.tail.blocks[0]
	if found, err := l.tail.next(b); !found || err != nil {
		return false, err
	}
	return true, l.tail.deliver(ctx, b, false, fn)
}
