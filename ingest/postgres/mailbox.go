package postgres

import (
	"context"
	"sync"

	"docstore/ingest"
	"docstore/ingest/postgres/pgoutput"
)

// place is the part of a cursor that differs from record to record.
type place struct {
	phase phase
	key   []byte // among rows
	lsn   pgoutput.LSN
	index uint64
	// anchor identifies the transaction, or the last one before a heartbeat.
	anchor anchor
}

// batch is a series of records and their places.
type batch struct {
	records []ingest.Record
	places  []place
	bytes   int
}

// recordBytes is the memory of a record without its contents.
const recordBytes = 256

func (b *batch) add(r ingest.Record, at place) {
	b.records = append(b.records, r)
	b.places = append(b.places, at)
	b.bytes += recordBytes + len(r.ID) + len(r.Document)
}

// mailbox passes records from the goroutine that reads to Next. It holds about maxWaitingBytes,
// then put waits. Batches grow while Next is busy.
type mailbox struct {
	filled, emptied chan struct{} // capacity 1

	mu struct {
		sync.Mutex
		waiting batch
		err     error // after waiting
	}
}

func newMailbox() *mailbox {
	return &mailbox{filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

// put adds a batch, which may be reused.
func (m *mailbox) put(ctx context.Context, b *batch) error {
	for {
		m.mu.Lock()
		if w := &m.mu.waiting; w.bytes < maxWaitingBytes {
			w.records = append(w.records, b.records...)
			w.places = append(w.places, b.places...)
			w.bytes += b.bytes
			m.mu.Unlock()
			signal(m.filled)
			return nil
		}
		m.mu.Unlock()
		select {
		case <-m.emptied:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end ends the records with an error. The first one counts.
func (m *mailbox) end(err error) {
	m.mu.Lock()
	if m.mu.err == nil {
		m.mu.err = err
	}
	m.mu.Unlock()
	signal(m.filled)
}

// take waits for records and returns all.
func (m *mailbox) take(ctx context.Context) (batch, error) {
	for {
		m.mu.Lock()
		b, err := m.mu.waiting, m.mu.err
		m.mu.waiting = batch{}
		m.mu.Unlock()
		if len(b.records) > 0 {
			signal(m.emptied)
			return b, nil
		}
		if err != nil {
			return b, err
		}
		select {
		case <-m.filled:
		case <-ctx.Done():
			return batch{}, ctx.Err()
		}
	}
}

// signal wakes the receiver of c now, or when it next receives.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
