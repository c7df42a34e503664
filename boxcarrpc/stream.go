package boxcarrpc

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"unsafe"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// A stream is the common part of both ends of a stream: outgoing messages, for which the
// peer has given credit, and incoming messages, for which this side has. Nothing is
// accepted without credit, and no goroutine waits for credit while it holds a turn, so a
// stream that is not read delays no other.
//
// Lock order: stream.mu, the outbox's. No other lock is taken under stream.mu.
type stream struct {
	out        *conn.Outbox
	account    *budget.Account // charged for messages that were not received by the program; nil for none
	number     uint32
	sequence   uint32
	maxMessage int             // size of the largest incoming message
	ctx        context.Context // ends when the stream is over or is to end early

	arrived chan struct{} // receives an element when there is something to receive
	allowed chan struct{} // receives an element when there is credit to send

	sending sync.Mutex // one message at a time, so that parts of two do not mix
	bulk    conn.Bulk
	prompt  atomic.Bool // the next message is the first, or the first since one was received

	mu struct {
		sync.Mutex
		credit  int // bytes that may be sent
		window  int
		taken   int // bytes received for which the peer has no new credit yet
		pieces  []piece
		next    int    // index of the first piece that was not received
		data    []byte // data of the pieces
		charged int    // bytes charged for both
		start   int    // offset of the next piece in data
		ended   bool
		over    bool  // nothing is sent any more
		failure error // why it is over; nil if it ended without error
		tooLong bool  // a message was too long; nothing is received after it, since its rest would look like another message
	}
}

// A piece is the data of one MESSAGE frame.
type piece struct {
	size int
	more bool
}

func (s *stream) init(out *conn.Outbox, number, sequence uint32, maxMessage int) {
	s.out, s.number, s.sequence, s.maxMessage = out, number, sequence, maxMessage
	s.arrived, s.allowed = make(chan struct{}, 1), make(chan struct{}, 1)
	s.bulk.InitStream()
	s.mu.credit, s.mu.window = wire.Window, wire.Window
	s.prompt.Store(true)
}

// notify sends an element on a channel of capacity 1, if it is empty.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Frames of the peer. Only the holder of the read turn calls these methods.

// takeMessage handles a MESSAGE.
func (s *stream) takeMessage(data []byte, more bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cost := wire.MessageCost(len(data))
	switch {
	case s.mu.over:
		return nil
	case s.mu.ended:
		return protocolError("MESSAGE after END on stream %d", s.number)
	case cost > s.mu.window:
		return protocolError("MESSAGE of %d bytes on stream %d, which has credit for %d", cost, s.number, s.mu.window)
	}
	s.mu.window -= cost
	s.mu.pieces = append(s.mu.pieces, piece{len(data), more})
	s.mu.data = append(s.mu.data, data...)
	s.chargeLocked()
	notify(s.arrived)
	return nil
}

// chargeLocked charges the memory of messages that were not received by the program.
func (s *stream) chargeLocked() {
	holds := cap(s.mu.data) + cap(s.mu.pieces)*int(unsafe.Sizeof(piece{}))
	if s.account != nil && holds != s.mu.charged {
		s.account.Change(int64(holds - s.mu.charged))
		s.mu.charged = holds
	}
}

// freePieces frees the messages that were not received. The stream is over.
func (s *stream) freePieces() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.pieces, s.mu.data, s.mu.next, s.mu.start = nil, nil, 0, 0
	s.chargeLocked()
}

// takeCredit handles a CREDIT.
func (s *stream) takeCredit(n uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.credit+int(n) > wire.Window {
		return protocolError("CREDIT of %d bytes on stream %d, which has %d", n, s.number, s.mu.credit)
	}
	s.mu.credit += int(n)
	notify(s.allowed)
	return nil
}

// takeEnd handles an END: the peer sends no more messages.
func (s *stream) takeEnd() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended && !s.mu.over {
		return protocolError("END twice on stream %d", s.number)
	}
	s.mu.ended = true
	notify(s.arrived)
	return nil
}

// Receiving.

// receive appends the next message to dst. It returns io.EOF after the last one if the
// stream did not fail.
func (s *stream) receive(dst []byte) ([]byte, error) {
	out := dst
	for {
		var done bool
		var err error
		out, done, err = s.takePieces(out, len(dst))
		switch {
		case err != nil:
			return dst, err
		case done:
			s.prompt.Store(true)
			return out, nil
		}
		select {
		case <-s.arrived:
		case <-s.ctx.Done():
			// Messages that arrived before the end of the stream still count.
			if out, done, err = s.takePieces(out, len(dst)); err != nil {
				return dst, err
			} else if !done {
				return dst, s.cause()
			}
			return out, nil
		}
	}
}

// takePieces appends the available pieces of the next message. done reports that the
// message is complete. The peer gets new credit when half of the window is used.
func (s *stream) takePieces(dst []byte, before int) (out []byte, done bool, err error) {
	s.mu.Lock()
	for s.mu.next < len(s.mu.pieces) && !done {
		p := s.mu.pieces[s.mu.next]
		if s.mu.tooLong = s.mu.tooLong || len(dst)-before+p.size > s.maxMessage; s.mu.tooLong {
			s.mu.Unlock()
			return dst, false, &Error{
				Code:      CodeResourceExhausted,
				Message:   fmt.Sprintf("message of more than %d bytes on a stream", s.maxMessage),
				Processed: true,
			}
		}
		dst = append(dst, s.mu.data[s.mu.start:s.mu.start+p.size]...)
		s.mu.next, s.mu.start = s.mu.next+1, s.mu.start+p.size
		s.mu.taken += wire.MessageCost(p.size)
		done = !p.more
	}
	if s.mu.next > len(s.mu.pieces)/2 { // so that each byte is moved once on average
		s.mu.pieces = s.mu.pieces[:copy(s.mu.pieces, s.mu.pieces[s.mu.next:])]
		s.mu.data = s.mu.data[:copy(s.mu.data, s.mu.data[s.mu.start:])]
		s.mu.next, s.mu.start = 0, 0
	}
	switch {
	case done:
	case s.mu.failure != nil:
		err = s.mu.failure
	case s.mu.ended && len(dst) > before:
		err = &Error{Code: CodeInternal, Message: "the stream ended within a message", Processed: true}
	case s.mu.ended:
		err = io.EOF
	}
	grant := 0
	if s.mu.taken >= wire.Window/2 && !s.mu.ended && !s.mu.over {
		grant, s.mu.taken = s.mu.taken, 0
		s.mu.window += grant
		s.out.Append(wire.AppendCredit(nil, s.number, s.sequence, uint32(grant)))
	}
	s.mu.Unlock()
	if grant > 0 {
		s.out.Flush(false)
	}
	return dst, done, err
}

// cause returns why the stream is over or about to be.
func (s *stream) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.failure != nil:
		return s.mu.failure
	case s.mu.over:
		return io.EOF
	}
	return contextError(s.ctx, true)
}

// Sending.

// send sends a message and returns when message is no longer read.
func (s *stream) send(message []byte) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	for first := true; first || len(message) > 0; first = false {
		n, err := s.awaitCredit(len(message))
		if err != nil {
			return err
		}
		if err := s.sendPiece(message[:n], n < len(message)); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// awaitCredit waits until some of n bytes may be sent, and takes the credit.
func (s *stream) awaitCredit(n int) (allowed int, err error) {
	for {
		s.mu.Lock()
		allowed, cost, ok := affordable(n, s.mu.credit)
		if ok {
			s.mu.credit -= cost
		}
		s.mu.Unlock()
		if s.ctx.Err() != nil {
			return 0, s.cause()
		}
		if ok {
			return allowed, nil
		}
		select {
		case <-s.allowed:
		case <-s.ctx.Done():
		}
	}
}

// affordable returns how many of n bytes may be sent with some credit, given how the outbox
// cuts them into frames, and their cost. An empty message is a MESSAGE frame, too.
func affordable(n, credit int) (allowed, cost int, ok bool) {
	if n == 0 {
		cost = wire.MessageCost(0)
		return 0, cost, cost <= credit
	}
	for allowed < n && credit-cost > wire.MessageCost(0) {
		size := min(n-allowed, wire.MessageRoom, credit-cost-wire.MessageCost(0))
		allowed, cost = allowed+size, cost+wire.MessageCost(size)
	}
	return allowed, cost, allowed > 0
}

// sendPiece sends a part of a message, for which there is credit.
func (s *stream) sendPiece(data []byte, more bool) error {
	s.mu.Lock()
	if s.mu.over {
		s.mu.Unlock()
		return s.cause()
	}
	copied := s.out.Message(&s.bulk, s.number, s.sequence, data, more)
	s.mu.Unlock()
	// The first message after one was received is sent at once. After another message more
	// are likely to follow, and a goroutine writes them together when it is scheduled.
	if prompt := s.prompt.Swap(false); copied && !prompt {
		s.out.FlushSoon()
		return nil
	}
	s.out.Flush(true)
	if copied {
		return nil
	}
	select {
	case <-s.bulk.Taken():
		return nil
	case <-s.ctx.Done():
		s.out.Drop(&s.bulk)
		<-s.bulk.Taken()
		return s.cause()
	}
}

// finish ends the sending side: nothing is sent after the frame that last appends. It
// reports whether this was the first call.
func (s *stream) finish(failure error, last func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.over {
		return false
	}
	s.mu.over, s.mu.failure = true, failure
	s.out.Drop(&s.bulk)
	if last != nil {
		last()
	}
	return true
}
