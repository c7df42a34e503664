package files

import (
	"io"
	"os"
)

// pipeBytes is the size of a read from a pipe.
const pipeBytes = 64 << 10

// pipe reads from a pipe in a goroutine: a read, and the opening of a named pipe, may never
// return.
type pipe struct {
	ctx    *callerContext
	chunks chan chunk
	free   chan []byte // buffers of the goroutine
	closed chan struct{}
	buffer []byte // of rest
	rest   []byte
	err    error // behind rest
}

// chunk is the result of a read.
type chunk struct {
	bytes []byte
	err   error
}

func openPipe(ctx *callerContext, open func() (io.ReadCloser, error)) *pipe {
	p := &pipe{ctx: ctx, chunks: make(chan chunk), free: make(chan []byte, 2), closed: make(chan struct{})}
	for range cap(p.free) {
		p.free <- make([]byte, pipeBytes)
	}
	go p.run(open)
	return p
}

// opener returns a function that opens an input that is a pipe.
func (in *input) opener(stdin io.Reader) func() (io.ReadCloser, error) {
	if in.stdin {
		return func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }
	}
	return func() (io.ReadCloser, error) { return os.Open(in.name) }
}

func (p *pipe) run(open func() (io.ReadCloser, error)) {
	r, err := open()
	if err != nil {
		p.send(chunk{err: err})
		return
	}
	defer r.Close()
	for buffer := range p.free {
		n, err := r.Read(buffer)
		if !p.send(chunk{buffer[:n], err}) || err != nil {
			return
		}
	}
}

// send returns false if the pipe was closed.
func (p *pipe) send(c chunk) bool {
	select {
	case p.chunks <- c:
		return true
	case <-p.closed:
		return false
	}
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		if p.buffer != nil {
			p.free <- p.buffer[:cap(p.buffer)]
			p.buffer = nil
		}
		ctx := p.ctx.get()
		select {
		case c := <-p.chunks:
			p.buffer, p.rest, p.err = c.bytes, c.bytes, c.err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Close ends the goroutine when its read has returned.
func (p *pipe) Close() error {
	close(p.closed)
	close(p.free)
	return nil
}
