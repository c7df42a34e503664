package boxcarrpc

import "docstore/boxcarrpc/internal/wire"

// What streams add to an outbox. A message is bulk, however small: it is not
// copied, its sender waits until it has been taken, and it has its turn among
// the others frame by frame, so that many streams do not crowd out a call.

// message queues a message, or some of one, on a stream. data is read until
// b.taken tells, or b was dropped.
func (o *outbox) message(b *bulkMessage, number, sequence uint32, data []byte, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b.lane, b.sequence, b.rest, b.more, b.queued = number, sequence, data, more, true
	if o.mu.closed {
		o.doneLocked(b)
		return
	}
	o.mu.bulk = append(o.mu.bulk, b)
	o.mu.bulkBytes += len(data)
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
	defer o.mu.Unlock()
	ticket = o.mu.taken + uint64(len(o.mu.pending))
	o.mu.pending = wire.AppendOpen(o.mu.pending, number, head, method, metadata)
	return ticket
}

func (o *outbox) header(number, sequence uint32, metadata []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.pending = wire.AppendHeader(o.mu.pending, number, sequence, metadata)
}

func (o *outbox) credit(number, sequence, n uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.pending = wire.AppendCredit(o.mu.pending, number, sequence, n)
}

func (o *outbox) sequence(t wire.Type, number, sequence uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.pending = wire.AppendSequence(o.mu.pending, t, number, sequence)
}

func (o *outbox) status(number uint32, flags uint8, s wire.Status, trailer []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.pending = wire.AppendStatus(o.mu.pending, number, flags, s, trailer)
}
