package boxcarrpc

import "docstore/boxcarrpc/internal/wire"

// What streams add to an outbox. A small message is copied into the next batch, if
// that is not full of others, so that many go out in one write. Any other is bulk:
// it is not copied, its sender waits until it has been taken, and it has its turn
// among the others frame by frame, so that many streams do not crowd out a call.

const (
	// The largest message that is copied. Beyond it a write of its own costs less
	// than half of what it carries.
	smallMessage = 8 << 10
	// So much of a batch may be small messages.
	smallMessages = batchBytes / 2
)

// message queues a message, or some of one, on a stream. It reports whether data was
// copied; else it is read until b.taken tells, or b was dropped.
func (o *outbox) message(b *bulkMessage, number, sequence uint32, data []byte, more bool) (copied bool) {
	o.mu.Lock()
	defer o.unlock()
	if len(data) <= smallMessage && len(o.mu.pending) < smallMessages && !o.mu.closed {
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

// appendMessage appends a MESSAGE with the first n bytes that are left.
func (b *bulkMessage) appendMessage(dst []byte, n int) []byte {
	var flags uint8
	if b.more || n < len(b.rest) {
		flags = wire.FlagMore
	}
	return wire.AppendMessage(dst, b.lane, b.sequence, flags, b.rest[:n])
}

// open, header, credit, sequence and status append one frame each.

func (o *outbox) open(number uint32, head wire.Open, method string, metadata []byte) (ticket uint64) {
	o.mu.Lock()
	defer o.unlock()
	ticket = o.mu.taken + uint64(len(o.mu.pending))
	o.mu.pending = wire.AppendOpen(o.mu.pending, number, head, method, metadata)
	return ticket
}

func (o *outbox) header(number, sequence uint32, metadata []byte) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendHeader(o.mu.pending, number, sequence, metadata)
}

func (o *outbox) credit(number, sequence, n uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendCredit(o.mu.pending, number, sequence, n)
}

func (o *outbox) sequence(t wire.Type, number, sequence uint32) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendSequence(o.mu.pending, t, number, sequence)
}

func (o *outbox) status(number uint32, flags uint8, s wire.Status, trailer []byte) {
	o.mu.Lock()
	defer o.unlock()
	o.mu.pending = wire.AppendStatus(o.mu.pending, number, flags, s, trailer)
}
