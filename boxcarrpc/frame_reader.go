package boxcarrpc

import (
	"io"
	"sync/atomic"

	"docstore/boxcarrpc/internal/wire"
)

// The buffer of a connection begins small, because most connections are idle,
// and grows while it is filled in one read.
const (
	minReadBuffer = 512
	maxReadBuffer = 64 << 10 // holds any frame
)

// A frameReader cuts what a connection brings into frames. Whoever holds the
// connection's read turn uses it; received may be read by anyone.
type frameReader struct {
	conn       io.Reader
	beforeRead func(partial bool) error // may be nil; partial: the buffer holds the start of a frame
	buffer     []byte
	start, end int
	account    *Account // is charged for the buffer; nil for none
	received   atomic.Uint64
}

// next waits for the next frame, which is valid until the next read.
func (r *frameReader) next() (wire.Frame, error) {
	for {
		if f, ok, err := r.buffered(); ok || err != nil {
			return f, err
		}
		if err := r.read(); err != nil {
			return wire.Frame{}, err
		}
	}
}

// buffered takes the next frame off the buffer, if it holds a whole one.
func (r *frameReader) buffered() (f wire.Frame, ok bool, err error) {
	f, n, err := wire.ParseFrame(r.buffer[r.start:r.end])
	r.start += n
	return f, n > 0, err
}

// first is next for the first frame of a server, whose protocol is not known yet.
func (r *frameReader) first() (wire.Frame, error) {
	for {
		f, ok, err := r.buffered()
		if err == nil && !ok {
			err = r.read()
		}
		answer := r.buffer[r.start:r.end]
		switch {
		case ok:
			return f, nil
		case err != nil:
			return wire.Frame{}, noHello(answer, err)
		}
		if err := notBoxcarError(answer); err != nil {
			return wire.Frame{}, err
		}
	}
}

// read waits until the connection brings more.
func (r *frameReader) read() error {
	if r.beforeRead != nil {
		if err := r.beforeRead(r.end > r.start); err != nil {
			return err
		}
	}
	if r.account.isTight() {
		r.shrink()
	}
	r.makeRoom()
	n, err := r.conn.Read(r.buffer[r.end:])
	if n > 0 {
		r.end += n
		r.received.Add(uint64(n))
		return nil // an error beside bytes comes again
	}
	return err
}

// makeRoom leaves only what is not yet consumed in the buffer, and makes it
// larger if that, or the last read, has filled it.
func (r *frameReader) makeRoom() {
	filled := r.end == len(r.buffer)
	rest := r.buffer[r.start:r.end]
	switch {
	case r.buffer == nil:
		r.replace(make([]byte, minReadBuffer))
	case filled && len(r.buffer) < maxReadBuffer:
		r.replace(make([]byte, 2*len(r.buffer)))
	}
	r.end = copy(r.buffer, rest)
	r.start = 0
}

// shrink gives the buffer back, if nothing waits in it.
func (r *frameReader) shrink() {
	if r.start == r.end && len(r.buffer) > minReadBuffer {
		r.replace(nil)
		r.start, r.end = 0, 0
	}
}

// replace changes the buffer, not its content.
func (r *frameReader) replace(buffer []byte) {
	r.account.Charge(int64(len(buffer)))
	r.account.Release(int64(len(r.buffer)))
	r.buffer = buffer
}
