package boxcarrpc

import (
	"runtime"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

const (
	// A batch is filled with bulk data up to this size, so that a small frame
	// waits for no more than one such batch.
	batchBytes = 64 << 10
	// A buffer up to this size is kept for the next batch. One that is made anew for
	// each batch costs more than all else about large answers.
	keptBatch = 1 << 20
	// One waiting write gets at most this much, so that its time limit is about
	// progress and not about size.
	writeBytes = 256 << 10
	// Somebody with work of his own writes so many batches in one turn, and
	// leaves the rest to a goroutine.
	turnBatches = 4
)

// The write turn. Whoever has appended frames flushes: if the turn is free he
// takes it and writes what is pending, also what others append meanwhile; else
// the one who holds it will find the frames. He writes only what the kernel
// takes at once. What it does not take, what keeps coming, and all that goes out
// on a connection which knows only waiting writes, is left to a goroutine, which
// has the turn until nothing is pending.
//
// Invariants, with mu.writing for the turn:
//
//   - Only its holder calls take and writes to the connection.
//   - The turn is given up only under mu, with nothing pending or the box
//     closed; so frames appended under mu never stay behind without a holder
//     unless their sender has yet to flush.
//   - Nobody gets the turn once the box is closed: writers.Wait ends then.

// flush sends what is pending. gather says that others are likely about to
// append as well, so that one write may do for all. The caller holds no lock.
func (o *outbox) flush(gather bool) {
	if o.takeTurn() {
		o.writeTurn(gather)
	}
}

// writeTurn is the turn of who has taken it.
func (o *outbox) writeTurn(gather bool) {
	if o.socket == nil {
		o.handOver(nil)
		return
	}
	if gather {
		runtime.Gosched()
	}
	for range turnBatches {
		batch, err := o.next()
		if len(batch) == 0 && err == nil {
			return
		}
		if err == nil {
			batch, err = o.writeNow(batch)
		}
		if err != nil {
			o.fail(err)
			return
		}
		if len(batch) > 0 {
			o.handOver(batch)
			return
		}
	}
	o.handOver(nil)
}

// flushSoon is flush for those who hold a lock: a goroutine does it.
func (o *outbox) flushSoon() {
	if o.takeTurn() {
		o.handOver(nil)
	}
}

// takeTurn takes the write turn, if it is free and there is something to write.
func (o *outbox) takeTurn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.takeTurnLocked()
}

func (o *outbox) takeTurnLocked() bool {
	if o.mu.writing || o.mu.closed || len(o.mu.pending) == 0 && len(o.mu.bulk) == 0 {
		return false
	}
	o.mu.writing = true
	return true
}

// handOver passes the write turn, and the rest of a batch, to a goroutine.
func (o *outbox) handOver(rest []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		o.mu.writing = false
		return
	}
	o.writers.Go(func() { o.writeAll(rest) })
}

// writeAll writes until nothing is pending or a write fails, first the rest of a batch
// that the kernel has not taken at once. It tries that with each batch that has no bulk: see
// readNow of what a call costs that may wait. To wait for bulk in such a call leaves the
// processor to small calls beside it. Before each batch it lets all others run who can:
// who is about to append shall be in it, and whose small message waits for a processor
// shall not wait for bulk. That, here and in the reader, is a third off the p99 of small
// calls beside large ones.
func (o *outbox) writeAll(batch []byte) {
	for {
		var err error
		if len(batch) == 0 {
			runtime.Gosched()
			if batch, err = o.next(); err == nil && len(batch) == 0 {
				return
			}
			if err == nil && len(batch) < batchBytes {
				batch, err = o.writeNow(batch)
			}
		}
		if err == nil && len(batch) > 0 {
			err = o.write(batch)
		}
		if err != nil {
			o.fail(err)
			return
		}
		batch = nil
	}
}

// next returns the next batch as it is to be written, which is valid until the next
// call. If there is none it gives the turn up.
func (o *outbox) next() ([]byte, error) {
	batch := o.take()
	if len(batch) == 0 || o.tlsBatchConn == nil {
		return batch, nil
	}
	o.written.Add(uint64(len(batch)))
	return o.tlsBatchConn.seal(o.tls, batch)
}

// count notes that n bytes of a batch may have reached the kernel; a negative n takes
// back what it has not taken.
func (o *outbox) count(n int) {
	if o.tlsBatchConn == nil {
		o.written.Add(uint64(n))
	}
}

// fail closes the box after a write that failed, and tells.
func (o *outbox) fail(err error) {
	o.close()
	o.mu.Lock()
	o.mu.writing = false
	o.mu.Unlock()
	o.failed(err)
}

// take returns the frames of the next batch. If there are none it gives the turn up.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.unlock()
	o.mu.large = 0 // the batch before has been written
	batch := o.mu.pending
	for len(batch) < batchBytes && len(o.mu.bulk) > 0 {
		batch = o.takeBulkLocked(batch)
	}
	if len(batch) == 0 || o.mu.closed {
		o.mu.writing = false
		if o.account.isTight() {
			o.mu.pending, o.mu.spare = nil, nil
		}
		return nil
	}
	o.mu.pending, o.mu.spare = o.mu.spare[:0], nil
	if o.mu.large = cap(batch); o.mu.large <= keptBatch {
		o.mu.spare, o.mu.large = batch[:0], 0
	}
	o.mu.taken += uint64(len(batch))
	o.drained.Broadcast()
	return batch
}

// takeBulkLocked appends one frame of the first bulk message, which then goes
// to the end of the queue.
func (o *outbox) takeBulkLocked(batch []byte) []byte {
	b := o.mu.bulk[0]
	n := min(len(b.rest), wire.DataRoom)
	batch = b.appendFrame(batch, n)
	b.rest = b.rest[n:]
	o.mu.bulkBytes -= n
	copy(o.mu.bulk, o.mu.bulk[1:])
	last := len(o.mu.bulk) - 1
	if len(b.rest) > 0 {
		o.mu.bulk[last] = b
		return batch
	}
	o.mu.bulk[last] = nil
	o.mu.bulk = o.mu.bulk[:last]
	o.doneLocked(b)
	return batch
}

// writeNow returns what the kernel does not take of a batch now.
func (o *outbox) writeNow(batch []byte) (rest []byte, err error) {
	if o.socket == nil {
		return batch, nil
	}
	o.count(len(batch)) // before the call: the connection may end while the kernel has some of it
	n, err := o.socket.write(batch)
	if n < len(batch) {
		o.count(n - len(batch))
	}
	return batch[n:], err
}

// write writes a batch and waits until the connection has taken it.
func (o *outbox) write(batch []byte) (err error) {
	for len(batch) > 0 && err == nil {
		n := min(len(batch), writeBytes)
		if o.timeout > 0 {
			if err := o.conn.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil {
				return err
			}
		}
		o.count(n) // until it is known better
		var wrote int
		o.account.Await(n)
		wrote, err = o.conn.Write(batch[:n])
		o.account.Moved(n)
		o.count(wrote - n)
		batch = batch[n:]
	}
	if o.timeout > 0 && err == nil {
		err = o.conn.SetWriteDeadline(time.Time{}) // it would hold for the socket too
	}
	return err
}
