package boxcargrpc

import (
	"errors"
	"slices"
	"sync"

	"docstore/boxcarrpc"
)

// A stream that a server refuses, because it is about to stop, is opened once more,
// as gRPC does: what was sent until then is sent again. Only UNAVAILABLE without a
// handler counts: an overloaded server's streams must not become twice as many.

// maxReplay bounds what is kept to be sent again. It is below the credit of a new
// stream, so that sending it waits for nobody.
const maxReplay = 128 << 10

// attempts is the stream of Boxcar under a clientStream: the first, or the second if
// that was refused.
type attempts struct {
	open func() (*boxcarrpc.ClientStream, error)

	// The stream, once it is known that there will be no other: the sender's and the
	// receiver's.
	toSend, toReceive *boxcarrpc.ClientStream

	mu struct {
		sync.Mutex
		stream    *boxcarrpc.ClientStream
		committed bool     // there is no further attempt
		sent      [][]byte // unless committed
		sentBytes int
		closed    bool // for sending
	}
}

// current returns the stream.
func (a *attempts) current() *boxcarrpc.ClientStream {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.stream
}

// commit gives up the further attempt, and returns the stream.
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
		return nil // it was among what was sent again
	}
	return err
}

// keep keeps a message for a further attempt, and returns the stream to send it on.
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

// closeSend says that no more is sent.
func (a *attempts) closeSend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	a.mu.stream.CloseSend()
}

// receive receives a message, after which there is no further attempt.
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

// header waits for the header, after which there is no further attempt.
func (a *attempts) header() (boxcarrpc.Metadata, error) {
	for {
		stream := a.current()
		m, err := stream.Header()
		if stream == a.commit() {
			return m, err
		}
	}
}

// again reports whether there is another stream in the place of one that failed,
// which it opens if it may.
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
		return false // what the first attempt failed of says more
	}
	for _, message := range sent {
		if stream.Send(message) != nil {
			break // Receive tells why
		}
	}
	if a.mu.closed {
		stream.CloseSend()
	}
	a.mu.stream = stream
	return true
}
