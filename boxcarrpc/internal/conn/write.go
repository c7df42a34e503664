package conn

import (
	"runtime"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

// BatchBytes is the size up to which a batch is filled with bulk data. A small frame waits
// for at most one such batch.
const BatchBytes = 64 << 10

const (
	// A buffer up to this size is kept for the next batch, until the connection is idle or
	// memory is tight. With 1 MiB, 64 callers that fetched 50 documents each had a buffer
	// grown for most batches, which took a quarter of the server's processor time.
	keptBatch = 4 << 20
	// A message ends with the batch if this much of it is left: a response of 32 or 64 KiB, for
	// example, has a few bytes more than its full frames.
	shortRest = 1 << 10
	// One blocking write gets at most this much, so that its timeout limits progress and
	// not the size of the batch.
	writeBytes = 256 << 10
	// A caller writes at most this many batches, and leaves the rest to a goroutine.
	turnBatches = 4
)

// The write turn is the right to write to the connection. A goroutine that has appended
// frames flushes: if the turn is free it takes the turn and writes everything that is
// pending, including frames that others append meanwhile; otherwise the holder finds the
// frames. A caller writes only what the kernel accepts without blocking. A goroutine of the
// outbox takes over the turn if the kernel accepts no more, if frames keep coming, and on
// connections that support blocking writes only.
//
// Invariants, where mu.writing is the turn:
//
//   - Only its holder calls take and writes to the connection.
//   - The turn is given up under mu, with nothing pending or the outbox closed. So
//     appended frames always have a holder, or a sender that has yet to flush.
//   - Once the outbox is closed no goroutine can take the turn, so writers.Wait
//     returns.

// Flush sends the pending frames. Set gather if other goroutines are likely to append
// frames soon: Flush then yields first, so that one write can carry them all. The caller
// must not hold a lock that the failed function takes.
func (o *Outbox) Flush(gather bool) {
	if o.takeTurn() {
		o.Write(gather)
	}
}

// Write is Flush for a caller that has got the write turn from Request.
func (o *Outbox) Write(gather bool) {
	if o.socket == nil {
		o.handOver(nil)
		return
	}
	if gather {
		runtime.Gosched()
	}
	for range turnBatches {
		batch, err := o.take()
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

// FlushSoon is Flush for callers that hold a lock: a goroutine writes.
func (o *Outbox) FlushSoon() {
	if o.takeTurn() {
		o.handOver(nil)
	}
}

// takeTurn takes the write turn if it is free and frames are pending.
func (o *Outbox) takeTurn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.takeTurnLocked()
}

func (o *Outbox) takeTurnLocked() bool {
	if o.mu.writing || o.mu.closed || len(o.mu.pending) == 0 && len(o.mu.bulk) == 0 {
		return false
	}
	o.mu.writing = true
	return true
}

// handOver passes the write turn, and the rest of a batch, to a goroutine.
func (o *Outbox) handOver(rest []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		o.mu.writing = false
		return
	}
	o.writers.Go(func() { o.writeAll(rest) })
}

// writeAll writes the rest of a batch and then everything that is pending, until nothing is
// left or a write fails. A batch without bulk is first written without blocking, which is
// cheaper: see transfer. A batch with bulk is written by a blocking call, so that the
// processor is free for small calls meanwhile. Before each batch writeAll yields, so that
// goroutines that are about to append small frames can do it first. Together with the same
// yield in the reader that cuts the p99 of small calls that run with large ones by a third.
func (o *Outbox) writeAll(batch []byte) {
	for {
		var err error
		if len(batch) == 0 {
			runtime.Gosched()
			if batch, err = o.take(); err == nil && len(batch) == 0 {
				return
			}
			if err == nil && len(batch) < BatchBytes {
				batch, err = o.writeNow(batch)
			}
		}
		if err == nil && len(batch) > 0 {
			err = o.writeBlocking(batch)
		}
		if err != nil {
			o.fail(err)
			return
		}
		batch = nil
	}
}

// count records that n bytes of a batch may have reached the kernel; a negative n corrects
// an earlier count.
func (o *Outbox) count(n int) {
	if o.batch == nil {
		o.written.Add(uint64(n))
	}
}

// fail closes the outbox after a failed write and calls failed.
func (o *Outbox) fail(err error) {
	o.Close()
	o.mu.Lock()
	o.mu.writing = false
	o.mu.Unlock()
	o.failed(err)
}

// take returns the frames of the next batch, encrypted if the connection uses TLS. It is
// valid until the next call. If there is none, take gives up the turn.
func (o *Outbox) take() ([]byte, error) {
	o.mu.Lock()
	o.mu.large = 0 // the previous batch has been written
	batch := o.mu.pending
	for len(o.mu.bulk) > 0 && (len(batch) < BatchBytes || len(o.mu.bulk[0].rest) <= shortRest) {
		batch = o.takeBulkLocked(batch)
	}
	if len(batch) == 0 || o.mu.closed {
		o.mu.writing = false
		if o.account.Tight() {
			o.mu.pending, o.mu.spare = nil, nil
		}
		o.unlock()
		return nil, nil
	}
	o.mu.pending, o.mu.spare = o.mu.spare[:0], nil
	if o.mu.large = cap(batch); o.mu.large <= keptBatch {
		o.mu.spare, o.mu.large = batch[:0], 0
	}
	o.mu.taken += uint64(len(batch))
	o.drained.Broadcast()
	o.unlock()
	if o.batch == nil {
		return batch, nil
	}
	o.written.Add(uint64(len(batch)))
	return o.batch.seal(o.tls, batch)
}

// takeBulkLocked appends one frame of the first bulk message and moves the message to the
// end of the queue.
func (o *Outbox) takeBulkLocked(batch []byte) []byte {
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

// writeNow writes without blocking and returns the bytes that the kernel did not accept.
func (o *Outbox) writeNow(batch []byte) (rest []byte, err error) {
	if o.socket == nil {
		return batch, nil
	}
	if o.batch == nil {
		o.written.Add(uint64(len(batch))) // before the call: the connection may fail after the kernel took some
	}
	n, err := o.socket.write(batch)
	if n < len(batch) {
		o.count(n - len(batch))
	}
	return batch[n:], err
}

// writeBlocking writes a batch and waits until the connection has accepted it.
func (o *Outbox) writeBlocking(batch []byte) (err error) {
	for len(batch) > 0 && err == nil {
		n := min(len(batch), writeBytes)
		if o.timeout > 0 {
			if err := o.conn.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil {
				return err
			}
		}
		o.count(n) // corrected below
		var wrote int
		o.account.Await(n)
		wrote, err = o.conn.Write(batch[:n])
		o.account.Moved(n)
		o.count(wrote - n)
		batch = batch[n:]
	}
	if o.timeout > 0 && err == nil {
		err = o.conn.SetWriteDeadline(time.Time{}) // the deadline would apply to the socket too
	}
	return err
}
