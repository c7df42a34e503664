package boxcargrpc

import (
	"errors"
	"slices"
	"sync"

	"docstore/boxcarrpc"
)

// A stream that a stopping server refuses is opened a second time, as in gRPC, and the
// messages sent so far are sent again. Only UNAVAILABLE before the handler has started
// counts, so that retries do not double the streams of an overloaded server.

// maxReplay bounds the messages that are kept for a second attempt. It is below the
// initial flow-control window of a stream, so that sending them does not block.
const maxReplay = 128 << 10

// attempts is the Boxcar stream of a clientStream: the first, or the second if the first
// was refused.
type attempts struct {
	open func() (*boxcarrpc.ClientStream, error)

	// The committed stream, cached for the sending and the receiving goroutine.
	toSend, toReceive *boxcarrpc.ClientStream

	mu struct {
		sync.Mutex
		stream    *boxcarrpc.ClientStream
		committed bool     // there is no second attempt
		sent      [][]byte // messages for a second attempt; nil if committed
		sentBytes int
		closed    bool // for sending
	}
}

// current returns the current stream.
func (a *attempts) current() *boxcarrpc.ClientStream {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.stream
}

// commit rules out a second attempt and returns the stream.
func (a *attempts) commit() *boxcarrpc.ClientStream {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commitLocked()
	return a.mu.stream
}

func (a *attempts) commitLocked() { a.mu.committed, a.mu.sent = true, nil }

// send sends a message.
func (a *attempts) send(message []byte) error {
	if a.toSend != nil {
		return a.toSend.Send(message)
	}
	stream := a.keep(message)
	err := stream.Send(message)
	if err != nil && a.again(stream, err) {
		return nil // the second attempt has sent it
	}
	return err
}

// keep stores a message for a second attempt and returns the stream to send it on.
func (a *attempts) keep(message []byte) *boxcarrpc.ClientStream {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.sentBytes += len(message) + 1; a.mu.sentBytes > maxReplay {
		a.commitLocked()
	}
	if a.mu.committed {
		a.toSend = a.mu.stream
	} else {
		a.mu.sent = append(a.mu.sent, slices.Clone(message))
	}
	return a.mu.stream
}

// closeSend half-closes the stream.
func (a *attempts) closeSend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	a.mu.stream.CloseSend()
}

// receive receives a message and commits the stream.
func (a *attempts) receive(dst []byte) ([]byte, error) {
	for {
		if a.toReceive != nil {
			return a.toReceive.Receive(dst)
		}
		stream := a.current()
		out, err := stream.Receive(dst)
		if err == nil {
			a.toReceive = a.commit()
			return out, nil
		}
		if !a.again(stream, err) {
			return dst, err
		}
	}
}

// header waits for the header and commits the stream.
func (a *attempts) header() (boxcarrpc.Metadata, error) {
	for {
		stream := a.current()
		m, err := stream.Header()
		if stream == a.commit() {
			return m, err
		}
	}
}

// again opens a second stream after a refusal. It reports whether a stream other than
// failed is current.
func (a *attempts) again(failed *boxcarrpc.ClientStream, err error) bool {
	var e *boxcarrpc.Error
	if !errors.As(err, &e) || e.Processed || e.Code != boxcarrpc.CodeUnavailable {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.mu.stream != failed:
		return true
	case a.mu.committed:
		return false
	}
	sent := a.mu.sent
	a.commitLocked()
	stream, err := a.open()
	if err != nil {
		return false // the first error is more informative
	}
	for _, message := range sent {
		if stream.Send(message) != nil {
			break // Receive returns the error
		}
	}
	if a.mu.closed {
		stream.CloseSend()
	}
	a.mu.stream = stream
	return true
}
