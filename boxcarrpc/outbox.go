package boxcarrpc

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

// An outbox is the frames on their way out of a connection. Anyone appends
// frames, and then flushes: see write_turn.go. Small messages go out in the
// order they were appended. What does not fit into one frame is bulk: it is not
// copied here but taken piece by piece from the sender's slice, every bulk
// message in its turn, after the small ones.
type outbox struct {
	conn         net.Conn
	socket       *socket       // nil if the connection knows only waiting writes
	tls          *tls.Conn     // nil for plain text
	tlsBatchConn *tlsBatchConn // beneath it
	timeout      time.Duration // for a waiting write; 0 for none
	failed       func(error)   // is told of a write that failed, after the box was closed
	account      *Account      // is charged for the buffers; nil for none

	// The bytes of the stream of frames that have reached the kernel, or may have: of
	// TLS those that were encrypted.
	written atomic.Uint64
	writers sync.WaitGroup // goroutines that hold the write turn

	mu struct {
		mutex
		writing   bool   // somebody holds the write turn
		pending   []byte // the frames of the next batch
		spare     []byte // the buffer of the batch before
		taken     uint64 // bytes of the stream in the batches taken so far
		bulk      []*bulkMessage
		bulkBytes int
		closed    bool
		large     int // bytes of a buffer that is being written and not kept
		charged   int // bytes of buffers that the account was charged for
	}
	drained sync.Cond // a batch was taken, or the box was closed
}

// A bulkMessage is the rest of a message whose first frame has been appended.
type bulkMessage struct {
	lane        uint32
	sequence    uint32
	rest        []byte        // the sender's; nobody reads it once the message is done or dropped
	taken       chan struct{} // gets one element when all has been taken; nil if nobody waits
	queued      bool
	stream      bool         // its frames are MESSAGEs, not DATAs
	reservation *Reservation // that is charged for the message; nil for none
	more        bool         // of a stream's message, which goes on after this
}

// appendFrame appends a frame with the first n bytes that are left.
func (b *bulkMessage) appendFrame(dst []byte, n int) []byte {
	if b.stream {
		return b.appendMessage(dst, n)
	}
	return wire.AppendData(dst, b.lane, b.sequence, b.rest[:n])
}

func (o *outbox) init(conn net.Conn, timeout time.Duration, failed func(error)) {
	if t, ok := conn.(*tls.Conn); ok {
		if s, ok := t.NetConn().(*tlsBatchConn); ok {
			o.tls, o.tlsBatchConn, conn = t, s, s.Conn
		}
	}
	o.conn, o.socket, o.timeout, o.failed = conn, socketOf(conn), timeout, failed
	o.drained.L = &o.mu
}

// slot, release, cancel, ping and reason append one frame each.

func (o *outbox) slot(t wire.Type, lane, slot uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendSlot(o.mu.pending, t, lane, slot)
}

func (o *outbox) release(lane uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendRelease(o.mu.pending, lane)
}

func (o *outbox) ping(t wire.Type, token uint64) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendPing(o.mu.pending, t, token)
}

func (o *outbox) reason(t wire.Type, reason string) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendReason(o.mu.pending, t, reason)
}

// cancel appends a CANCEL and drops what is left of the request.
func (o *outbox) cancel(lane, sequence uint32, b *bulkMessage) {
	o.mu.Lock()
	defer o.unlock()
	o.dropLocked(b)
	o.mu.pending = wire.AppendCancel(o.mu.pending, lane, sequence)
}

// request appends a request and takes the write turn, if it is free. data is read until
// b was taken or dropped. The ticket answers later whether any of it has reached the
// kernel.
func (o *outbox) request(lane uint32, r wire.Request, method string, metadata, data []byte, b *bulkMessage) (ticket uint64, writes bool) {
	first := min(len(data), wire.RequestRoom(method)-wire.RequestMetadataBytes(metadata))
	o.mu.Lock()
	defer o.unlock()
	ticket = o.mu.taken + uint64(len(o.mu.pending))
	o.mu.pending = wire.AppendRequestWith(o.mu.pending, lane, r, method, metadata, data[:first])
	o.queueLocked(b, lane, r.Sequence, data[first:])
	return ticket, o.takeTurnLocked()
}

// response appends a response and returns how much is pending now. If it is bulk,
// b.taken tells when data is no longer read.
func (o *outbox) response(lane uint32, flags uint8, r wire.Response, header, trailer, data []byte, b *bulkMessage) (pending int) {
	first := min(len(data), wire.ResponseRoom-wire.ResponseMetadataBytes(header, trailer))
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendResponseWith(o.mu.pending, lane, flags, r, header, trailer, data[:first])
	o.queueLocked(b, lane, r.Sequence, data[first:])
	return len(o.mu.pending)
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

// reached reports whether any of the request with this ticket has reached the
// kernel, or may have, because a waiting write of it is under way.
func (o *outbox) reached(ticket uint64) bool { return o.written.Load() > ticket }

// unlock ends a change of the buffers, whose capacity it charges.
func (o *outbox) unlock() {
	if o.mu.closed {
		o.mu.pending, o.mu.spare, o.mu.large = nil, nil, 0 // nothing is sent any more
	}
	if o.account != nil {
		o.settleLocked()
	}
	o.mu.Unlock()
}

// settleLocked charges the account for what the buffers hold, which seldom changes. Of
// TLS there is a second buffer for each, with the batch as it is encrypted.
func (o *outbox) settleLocked() {
	holds := cap(o.mu.pending) + cap(o.mu.spare) + o.mu.large
	if o.tlsBatchConn != nil {
		holds *= 2
	}
	if holds != o.mu.charged {
		o.account.change(int64(holds - o.mu.charged))
		o.mu.charged = holds
	}
}

// below reports whether less than limit bytes of small messages wait.
func (o *outbox) below(limit int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.pending) < limit
}

// waitBelow waits until less than small bytes of small messages, and less than all bytes
// together, wait to be written.
func (o *outbox) waitBelow(small, all int) {
	o.mu.Lock()
	for !o.mu.closed && (len(o.mu.pending) >= small || len(o.mu.pending)+o.mu.bulkBytes >= all) {
		o.drained.Wait()
	}
	o.mu.Unlock()
}

// shrink gives back the memory that an idle connection does not need.
func (o *outbox) shrink() {
	o.mu.Lock()
	defer o.unlock()
	if len(o.mu.pending) == 0 {
		o.mu.pending = nil
	}
	o.mu.spare = nil
	if o.tlsBatchConn != nil {
		o.tlsBatchConn.shrink()
	}
}

// close ends the box: what has not been taken is dropped, and whoever holds the
// write turn gives it up. It may be called more than once.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.unlock()
	if o.mu.closed {
		return
	}
	o.mu.closed = true
	for _, b := range o.mu.bulk {
		o.doneLocked(b)
	}
	o.mu.bulk, o.mu.bulkBytes = nil, 0
	o.drained.Broadcast()
}
