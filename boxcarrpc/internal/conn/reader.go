package conn

import (
	"io"
	"net"
	"sync/atomic"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/wire"
)

// MaxReadBuffer is the largest read buffer. It holds two frames of bulk data, so that a read
// that fills it seldom ends within a frame, whose begin would be moved.
const MaxReadBuffer = 2 * wire.MaxFrame

// A read buffer starts small, because most connections are idle, and doubles whenever one
// read fills it.
const minReadBuffer = 256

// A Reader splits the bytes of a connection into frames. Only Received may be called by
// goroutines that do not hold the connection's read turn.
type Reader struct {
	// BeforeRead is called before each read, if it is not nil. partial says that the
	// buffer holds the start of a frame. An error ends the reading.
	BeforeRead func(partial bool) error

	conn       io.Reader
	account    *budget.Account // charged for the buffer
	buffer     []byte
	start, end int // of the bytes that are not yet consumed
	received   atomic.Uint64
}

// Init prepares the reader of conn, before its first use.
func (r *Reader) Init(conn net.Conn, account *budget.Account) {
	r.conn, r.account = readerOf(conn), account
}

// Received returns the number of bytes read so far.
func (r *Reader) Received() uint64 { return r.received.Load() }

// Unread returns the bytes that were read and are not yet returned as frames. They are
// valid until the next read.
func (r *Reader) Unread() []byte { return r.buffer[r.start:r.end] }

// Held returns the bytes of the buffer.
func (r *Reader) Held() int { return len(r.buffer) }

// Next waits for the next frame, which is valid until the next read.
func (r *Reader) Next() (wire.Frame, error) {
	for {
		if f, ok, err := r.Buffered(); ok || err != nil {
			return f, err
		}
		if err := r.Read(); err != nil {
			return wire.Frame{}, err
		}
	}
}

// Buffered returns the next frame if the buffer holds a whole one. The frame is valid until
// the next read.
func (r *Reader) Buffered() (f wire.Frame, ok bool, err error) {
	f, n, err := wire.ParseFrame(r.buffer[r.start:r.end])
	r.start += n
	return f, n > 0, err
}

// Read waits until the connection delivers more bytes.
func (r *Reader) Read() error {
	if r.BeforeRead != nil {
		if err := r.BeforeRead(r.end > r.start); err != nil {
			return err
		}
	}
	if r.account.Tight() {
		r.Shrink()
	}
	// Move the unread bytes to the start of the buffer, and enlarge it if it is full or
	// the last read filled it.
	rest := r.buffer[r.start:r.end]
	switch {
	case r.buffer == nil:
		r.replace(make([]byte, minReadBuffer))
	case r.end == len(r.buffer) && len(r.buffer) < MaxReadBuffer:
		size := 2 * len(r.buffer)
		if size > MaxReadBuffer/2 {
			size = MaxReadBuffer
		}
		r.replace(make([]byte, size))
	}
	r.start, r.end = 0, copy(r.buffer, rest)
	n, err := r.conn.Read(r.buffer[r.end:])
	if n > 0 {
		r.end += n
		r.received.Add(uint64(n))
		return nil // the next read returns the error again
	}
	return err
}

// Shrink frees the buffer if it is empty and not small.
func (r *Reader) Shrink() {
	if r.start == r.end && len(r.buffer) > minReadBuffer {
		r.Free()
	}
}

// Free frees the buffer and the unread bytes in it.
func (r *Reader) Free() {
	r.replace(nil)
	r.start, r.end = 0, 0
}

func (r *Reader) replace(buffer []byte) {
	r.account.Charge(int64(len(buffer)))
	r.account.Release(int64(len(r.buffer)))
	r.buffer = buffer
}
