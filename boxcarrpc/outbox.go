package boxcarrpc

import (
	"net"
	"runtime"
	"sync"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

const (
	// A batch is filled with bulk data up to this size, so that a small frame
	// waits for no more than one such batch.
	batchBytes = 64 << 10
	// One write system call gets at most this much, so that the time limit of a
	// write is about progress and not about size.
	writeBytes = 256 << 10
)

// An outbox is the frames on their way out of a connection. Anyone appends
// frames; one goroutine, run, writes all that have come together since its last
// write. Small messages go out in the order they were appended. What does not
// fit into one frame is bulk: it is not copied here but taken piece by piece
// from the sender's slice, every bulk message in its turn, after the small ones.
type outbox struct {
	conn    net.Conn
	timeout time.Duration // for a write; 0 for none
	wake    chan struct{} // there is something to write
	stop    chan struct{} // closed by close

	mu struct {
		sync.Mutex
		pending   []byte // the frames of the next batch
		spare     []byte // the buffer of the batch before
		bulk      []*bulkMessage
		bulkBytes int
		batch     uint64 // how many batches have been taken
		closed    bool
	}
	drained sync.Cond // a batch was taken, or the box was closed
}

// A bulkMessage is the rest of a message whose first frame has been appended.
type bulkMessage struct {
	lane     uint32
	sequence uint32
	rest     []byte        // the sender's; nobody reads it once the message is done or dropped
	taken    chan struct{} // gets one element when all has been taken; nil if nobody waits
	queued   bool
}

func (o *outbox) init(conn net.Conn, timeout time.Duration) {
	o.conn, o.timeout = conn, timeout
	o.wake = make(chan struct{}, 1)
	o.stop = make(chan struct{})
	o.drained.L = &o.mu
}

// ring tells the writer that there is something to write. Called without mu.
func (o *outbox) ring() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// slot, release, cancel, ping and goAway append one frame each.

func (o *outbox) slot(t wire.Type, lane, slot uint32) {
	o.mu.Lock()
	o.mu.pending = wire.AppendSlot(o.mu.pending, t, lane, slot)
	o.mu.Unlock()
	o.ring()
}

func (o *outbox) release(lane uint32) {
	o.mu.Lock()
	o.mu.pending = wire.AppendRelease(o.mu.pending, lane)
	o.mu.Unlock()
	o.ring()
}

func (o *outbox) ping(t wire.Type, token uint64) {
	o.mu.Lock()
	o.mu.pending = wire.AppendPing(o.mu.pending, t, token)
	o.mu.Unlock()
	o.ring()
}

func (o *outbox) goAway(reason string) {
	o.mu.Lock()
	o.mu.pending = wire.AppendGoAway(o.mu.pending, reason)
	o.mu.Unlock()
	o.ring()
}

// cancel appends a CANCEL and drops what is left of the request.
func (o *outbox) cancel(lane, sequence uint32, b *bulkMessage) {
	o.mu.Lock()
	o.dropLocked(b)
	o.mu.pending = wire.AppendCancel(o.mu.pending, lane, sequence)
	o.mu.Unlock()
	o.ring()
}

// request appends a request. data is read until b was taken or dropped. The
// ticket answers later whether any of it may have left the process.
func (o *outbox) request(lane uint32, r wire.Request, method string, data []byte, b *bulkMessage) (ticket uint64) {
	first := min(len(data), wire.RequestRoom(method))
	o.mu.Lock()
	o.mu.pending = wire.AppendRequest(o.mu.pending, lane, r, method, data[:first])
	ticket = o.mu.batch
	o.queueLocked(b, lane, r.Sequence, data[first:])
	o.mu.Unlock()
	o.ring()
	return ticket
}

// response appends a response. If it is bulk, b.taken tells when data is no
// longer read.
func (o *outbox) response(lane uint32, flags uint8, r wire.Response, data []byte, b *bulkMessage) {
	first := min(len(data), wire.ResponseRoom)
	o.mu.Lock()
	o.mu.pending = wire.AppendResponse(o.mu.pending, lane, flags, r, data[:first])
	o.queueLocked(b, lane, r.Sequence, data[first:])
	o.mu.Unlock()
	o.ring()
}

func (o *outbox) queueLocked(b *bulkMessage, lane, sequence uint32, rest []byte) {
	if len(rest) == 0 {
		return
	}
	b.lane, b.sequence, b.rest, b.queued = lane, sequence, rest, true
	if o.mu.closed {
		o.doneLocked(b)
		return
	}
	o.mu.bulk = append(o.mu.bulk, b)
	o.mu.bulkBytes += len(rest)
}

// doneLocked ends a message that is not in the queue any more.
func (o *outbox) doneLocked(b *bulkMessage) {
	b.rest, b.queued = nil, false
	if b.taken != nil {
		b.taken <- struct{}{}
	}
}

// drop forgets what is left of a message, so that its data is no longer read.
func (o *outbox) drop(b *bulkMessage) {
	o.mu.Lock()
	o.dropLocked(b)
	o.mu.Unlock()
}

func (o *outbox) dropLocked(b *bulkMessage) {
	if !b.queued {
		return
	}
	for i, x := range o.mu.bulk {
		if x == b {
			o.mu.bulk = append(o.mu.bulk[:i], o.mu.bulk[i+1:]...)
			o.mu.bulkBytes -= len(b.rest)
			break
		}
	}
	o.doneLocked(b)
}

// reached reports whether any of the request with this ticket may have left the
// process.
func (o *outbox) reached(ticket uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.batch > ticket
}

// waitBelow waits until less than limit bytes are on their way out.
func (o *outbox) waitBelow(limit int) {
	o.mu.Lock()
	for !o.mu.closed && len(o.mu.pending)+o.mu.bulkBytes >= limit {
		o.drained.Wait()
	}
	o.mu.Unlock()
}

// close ends the box: what has not been taken is dropped. It may be called more
// than once.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return
	}
	o.mu.closed = true
	close(o.stop)
	for _, b := range o.mu.bulk {
		o.doneLocked(b)
	}
	o.mu.bulk, o.mu.bulkBytes = nil, 0
	o.drained.Broadcast()
}

// run writes until the box is closed or a write fails, which closes it.
func (o *outbox) run() error {
	for {
		select {
		case <-o.wake:
		case <-o.stop:
			return nil
		}
		// Whoever else is about to append shall be in the same batch.
		runtime.Gosched()
		for batch := o.take(); len(batch) > 0; batch = o.take() {
			if err := o.write(batch); err != nil {
				o.close()
				return err
			}
		}
	}
}

// take returns the next batch, which is valid until the next call.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return nil
	}
	batch := o.mu.pending
	for len(batch) < batchBytes && len(o.mu.bulk) > 0 {
		batch = o.takeBulkLocked(batch)
	}
	if len(batch) == 0 {
		return nil
	}
	o.mu.pending, o.mu.spare = o.mu.spare[:0], nil
	if cap(batch) <= 2*batchBytes {
		o.mu.spare = batch[:0]
	}
	o.mu.batch++
	o.drained.Broadcast()
	return batch
}

// takeBulkLocked appends one frame of the first bulk message, which then goes
// to the end of the queue.
func (o *outbox) takeBulkLocked(batch []byte) []byte {
	b := o.mu.bulk[0]
	n := min(len(b.rest), wire.DataRoom)
	batch = wire.AppendData(batch, b.lane, b.sequence, b.rest[:n])
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

func (o *outbox) write(batch []byte) error {
	for len(batch) > 0 {
		n := min(len(batch), writeBytes)
		if o.timeout > 0 {
			if err := o.conn.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil {
				return err
			}
		}
		if _, err := o.conn.Write(batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}
