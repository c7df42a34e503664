package conn

import "docstore/boxcarrpc/internal/wire"

// SmallMessage is the size up to which a message of a stream is copied. For a larger one, a
// separate write costs less than half of sending it.
const SmallMessage = 8 << 10

// At most this much of a batch is small messages of streams.
const smallMessages = BatchBytes / 2

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

// Open appends an OPEN. ticket is the argument of Reached.
func (o *Outbox) Open(number uint32, head wire.Open, method string, metadata []byte) (ticket uint64) {
	o.mu.Lock()
	defer o.unlock()
	ticket = o.mu.taken + uint64(len(o.mu.pending))
	o.mu.pending = wire.AppendOpen(o.mu.pending, number, head, method, metadata)
	return ticket
}

// Slot appends a frame of type t about a slot of a lane.
func (o *Outbox) Slot(t wire.Type, lane, slot uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendSlot(o.mu.pending, t, lane, slot)
}

// Release appends a frame that releases a lane.
func (o *Outbox) Release(lane uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendRelease(o.mu.pending, lane)
}

// Ping appends a ping or pong frame.
func (o *Outbox) Ping(t wire.Type, token uint64) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendPing(o.mu.pending, t, token)
}

// Reason appends a frame of type t with a reason.
func (o *Outbox) Reason(t wire.Type, reason string) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendReason(o.mu.pending, t, reason)
}

// Header appends a header frame of a stream.
func (o *Outbox) Header(number, sequence uint32, metadata []byte) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendHeader(o.mu.pending, number, sequence, metadata)
}

// Credit appends a credit frame of a stream.
func (o *Outbox) Credit(number, sequence, n uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendCredit(o.mu.pending, number, sequence, n)
}

// Sequence appends a frame of type t with a sequence number.
func (o *Outbox) Sequence(t wire.Type, number, sequence uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendSequence(o.mu.pending, t, number, sequence)
}

// Status appends a status frame of a stream.
func (o *Outbox) Status(number uint32, flags uint8, s wire.Status, trailer []byte) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendStatus(o.mu.pending, number, flags, s, trailer)
}
