package conn

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/spin"
	"docstore/boxcarrpc/internal/wire"
)

// SmallMessage is the size up to which a message of a stream is copied. For a larger one, a
// separate write costs less than half of sending it.
const SmallMessage = 8 << 10

// At most this much of a batch is small messages of streams.
const smallMessages = BatchBytes / 2

// An Outbox holds the frames that wait to be sent on a connection. Any goroutine may
// append frames; it then calls Flush: see write.go. Small messages are copied and sent in
// the order of their appending. A message that does not fit into one frame is bulk: it is
// not copied but taken frame by frame from the sender's slice, round robin among the bulk
// messages, after the small ones.
//
// An Outbox must be initialised with Init. Its methods may be called concurrently.
type Outbox struct {
	conn    net.Conn
	socket  *socket         // nil if the connection supports blocking writes only
	tls     *tls.Conn       // nil for plain text
	batch   *tlsBatchConn   // beneath tls
	timeout time.Duration   // of a blocking write; 0 for none
	failed  func(error)     // called after a failed write, when the outbox is closed
	account *budget.Account // charged for the buffers

	// Bytes of the frames that may have reached the kernel; with TLS, those that were
	// encrypted.
	written atomic.Uint64
	writers sync.WaitGroup // goroutines that hold the write turn

	mu struct {
		spin.Mutex
		writing   bool   // the write turn is taken
		pending   []byte // frames of the next batch
		spare     []byte // buffer of the previous batch
		taken     uint64 // bytes of all batches taken so far
		bulk      []*Bulk
		bulkBytes int
		sent      []Sent // owners to be called after the lock is released
		closed    bool
		large     int // capacity of a buffer that is being written and will not be kept
		charged   int // bytes charged to the account
	}
	drained sync.Cond // signalled when a batch was taken or the outbox was closed
}

// A Bulk is the part of a message that has not been sent, after its first frame was
// appended. The zero value is ready for use with a request; a response calls InitResponse, a
// stream InitStream.
type Bulk struct {
	lane     uint32
	sequence uint32
	rest     []byte        // the sender's; not read once the message is taken or dropped
	taken    chan struct{} // receives one element when rest is no longer read; may be nil
	sent     Sent          // called when rest is no longer read; may be nil
	queued   bool
	stream   bool // the frames are MESSAGE, not DATA
	more     bool // of a stream's message that continues after this part
}

// Sent is the owner of a response's data. Its method is called once, without a lock of the outbox,
// when the data is no longer read: it was taken for sending, or the outbox was closed.
type Sent interface{ Sent() }

// InitResponse makes b the rest of a response.
func (b *Bulk) InitResponse(owner Sent) { b.sent = owner }

// InitStream makes b a part of a stream's messages.
func (b *Bulk) InitStream() { b.stream, b.taken = true, make(chan struct{}, 1) }

// Taken returns the channel that receives one element when the data of the queued message
// is no longer read, because it was sent or dropped.
func (b *Bulk) Taken() <-chan struct{} { return b.taken }

// appendFrame appends a frame with the next n bytes.
func (b *Bulk) appendFrame(dst []byte, n int) []byte {
	if !b.stream {
		return wire.AppendData(dst, b.lane, b.sequence, b.rest[:n])
	}
	var flags uint8
	if b.more || n < len(b.rest) {
		flags = wire.FlagMore
	}
	return wire.AppendMessage(dst, b.lane, b.sequence, flags, b.rest[:n])
}

// Init prepares the outbox of conn, before its first use. timeout limits each blocking
// write of at most 256 KiB, 0 for no limit. failed is called after a write failed.
func (o *Outbox) Init(conn net.Conn, account *budget.Account, timeout time.Duration, failed func(error)) {
	if t, ok := conn.(*tls.Conn); ok {
		if s, ok := t.NetConn().(*tlsBatchConn); ok {
			o.tls, o.batch, conn = t, s, s.Conn
		}
	}
	o.conn, o.socket, o.account, o.timeout, o.failed = conn, socketOf(conn), account, timeout, failed
	o.drained.L = &o.mu
}

// Request appends a request and takes the write turn if it is free. data is read until b
// is taken or dropped. ticket is the argument of Reached. If writes is true the caller
// must call Write.
func (o *Outbox) Request(lane uint32, r wire.Request, method string, metadata, data []byte, b *Bulk) (ticket uint64, writes bool) {
	first := min(len(data), wire.RequestRoom(method)-wire.RequestMetadataBytes(metadata))
	o.mu.Lock()
	defer o.unlock()
	ticket = o.mu.taken + uint64(len(o.mu.pending))
	o.mu.pending = wire.AppendRequestWith(o.mu.pending, lane, r, method, metadata, data[:first])
	if first < len(data) {
		o.queueLocked(b, lane, r.Sequence, data[first:])
	}
	return ticket, o.takeTurnLocked()
}

// Response appends a response and returns the number of bytes that wait to be written. A response
// of one frame is copied. Of a longer one (IsBulk) the rest waits in b: queued is true, and data is
// read until the owner of b is told. A closed outbox drops the response: queued is false.
func (o *Outbox) Response(lane uint32, flags uint8, r wire.Response, header, trailer, data []byte, b *Bulk) (pending int, queued bool) {
	first := min(len(data), wire.ResponseRoom-wire.ResponseMetadataBytes(header, trailer))
	o.mu.Lock()
	defer o.unlock()
	if o.mu.closed {
		return 0, false
	}
	o.mu.pending = wire.AppendResponseWith(o.mu.pending, lane, flags, r, header, trailer, data[:first])
	if queued = first < len(data); queued {
		o.queueLocked(b, lane, r.Sequence, data[first:])
	}
	return len(o.mu.pending) + o.mu.bulkBytes, queued
}

// IsBulk reports whether a response needs more than one frame.
func IsBulk(header, trailer, data []byte) bool {
	return len(data) > wire.ResponseRoom-wire.ResponseMetadataBytes(header, trailer)
}

// Message queues a message of a stream, or a part of one. A small message is copied into
// the batch if there is room for it, so that many go out in one write. Any other is bulk,
// so that many streams do not delay calls. Message reports whether data was copied; if
// not, data is read until b is taken or dropped.
func (o *Outbox) Message(b *Bulk, number, sequence uint32, data []byte, more bool) (copied bool) {
	o.mu.Lock()
	defer o.unlock()
	if len(data) <= SmallMessage && len(o.mu.pending) < smallMessages && !o.mu.closed {
		var flags uint8
		if more {
			flags = wire.FlagMore
		}
		o.mu.pending = wire.AppendMessage(o.mu.pending, number, sequence, flags, data)
		return true
	}
	b.lane, b.sequence, b.rest, b.more, b.queued = number, sequence, data, more, true
	if o.mu.closed {
		o.doneLocked(b)
		return false
	}
	o.mu.bulk = append(o.mu.bulk, b)
	o.mu.bulkBytes += len(data)
	return false
}

// Cancel appends a CANCEL and drops the rest of the request.
func (o *Outbox) Cancel(lane, sequence uint32, b *Bulk) {
	o.mu.Lock()
	defer o.unlock()
	o.dropLocked(b)
	o.mu.pending = wire.AppendCancel(o.mu.pending, lane, sequence)
}

// Append appends encoded frames. ticket is the argument of Reached.
func (o *Outbox) Append(frames []byte) (ticket uint64) {
	o.mu.Lock()
	defer o.unlock()
	ticket = o.mu.taken + uint64(len(o.mu.pending))
	o.mu.pending = append(o.mu.pending, frames...)
	return ticket
}

func (o *Outbox) queueLocked(b *Bulk, lane, sequence uint32, rest []byte) {
	b.lane, b.sequence, b.rest, b.queued = lane, sequence, rest, true
	if o.mu.closed {
		o.doneLocked(b)
		return
	}
	o.mu.bulk = append(o.mu.bulk, b)
	o.mu.bulkBytes += len(rest)
}

// doneLocked ends a message that is no longer in the queue.
func (o *Outbox) doneLocked(b *Bulk) {
	b.rest, b.queued = nil, false
	if b.taken != nil {
		b.taken <- struct{}{}
	}
	if b.sent != nil {
		o.mu.sent = append(o.mu.sent, b.sent)
	}
}

// Drop removes the rest of a message, so that its data is no longer read.
func (o *Outbox) Drop(b *Bulk) {
	o.mu.Lock()
	o.dropLocked(b)
	o.mu.Unlock()
}

func (o *Outbox) dropLocked(b *Bulk) {
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

// Reached reports whether a byte of the frame with this ticket has reached the kernel, or
// may have, because a blocking write of it is in progress.
func (o *Outbox) Reached(ticket uint64) bool { return o.written.Load() > ticket }

// Written returns the number of bytes that have reached the kernel, or may have, because a
// write of them is in progress.
func (o *Outbox) Written() uint64 { return o.written.Load() }

// unlock ends a change of the buffers and charges the account for their capacity, which
// seldom changes. With TLS each has a second buffer for the encrypted batch.
func (o *Outbox) unlock() {
	if o.mu.closed {
		o.mu.pending, o.mu.spare, o.mu.large = nil, nil, 0 // nothing is sent any more
	}
	holds := cap(o.mu.pending) + cap(o.mu.spare) + o.mu.large
	if o.batch != nil {
		holds *= 2
	}
	if holds != o.mu.charged {
		o.account.Change(int64(holds - o.mu.charged))
	}
	o.mu.charged = holds
	sent := o.mu.sent
	o.mu.sent = nil
	o.mu.Unlock()
	for _, owner := range sent {
		owner.Sent()
	}
}

// Below reports whether less than limit bytes of small messages wait.
func (o *Outbox) Below(limit int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.pending) < limit
}

// WaitBelow waits until less than small bytes of small messages, and less than all bytes
// together, wait to be written, or the outbox is closed. It reports whether it has waited.
func (o *Outbox) WaitBelow(small, all int) (waited bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.mu.closed && (len(o.mu.pending) >= small || len(o.mu.pending)+o.mu.bulkBytes >= all) {
		o.drained.Wait()
		waited = true
	}
	return waited
}

// Shrink frees the buffers that an idle connection does not need.
func (o *Outbox) Shrink() {
	o.mu.Lock()
	defer o.unlock()
	if len(o.mu.pending) == 0 {
		o.mu.pending = nil
	}
	o.mu.spare = nil
	if o.batch != nil {
		o.batch.shrink()
	}
}

// Close drops all frames that have not been taken. The holder of the write turn gives it
// up. Close is idempotent.
func (o *Outbox) Close() {
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

// Held returns the bytes of the buffers.
func (o *Outbox) Held() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.charged
}

// Wait waits until no goroutine of the outbox writes any more. The outbox must be closed.
func (o *Outbox) Wait() { o.writers.Wait() }
