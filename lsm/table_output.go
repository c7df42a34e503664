package lsm

import (
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

const (
	// tableWriteBytes is how much of a table is written by one call, from a multiple of
	// it on.
	tableWriteBytes = 256 << 10
	// lastingWriteBytes is that of a table which will be read more often than it takes to
	// be written. It is the page of processors that is next larger than 4 KiB: Linux keeps
	// what was written so in one piece, and maps it as one page. Such pieces of memory are
	// dear on a virtual machine whose host takes back what is free: written so,
	// all tables together took 1,059 to 1,136 ns of processor time a write, and by smaller
	// pieces 742 to 821; a hit 787 to 935 ns, and 1,008 to 1,049.
	lastingWriteBytes = 2 << 20
	// partOverhang is what a part has room for beyond a write: a block that crosses its end.
	partOverhang = blockTargetBytes + maxPaddingBytes
	// firstPartBytes is what a part has room for at first. Small tables need no more.
	firstPartBytes = 128 << 10
	// maxParts are handed over and not yet written.
	maxParts = 1
)

// tableOutput writes a table to its file in a goroutine of its own: so a flush or a
// merge, which finds entries and makes blocks of them meanwhile, uses two processors. To
// have that goroutine compute CRCs and filters, too, took more time of both: it had to
// fetch what the other one had just written.
//
// The goroutine runs from newTableOutput until finish, which must be called. In
// between only parts, free and failed are shared with it.
type tableOutput struct {
	file   vfs.File
	parts  chan []byte
	free   chan []byte   // parts that were written, to be filled again
	done   chan struct{} // closed when the goroutine has ended
	failed atomic.Pointer[error]
}

func newTableOutput(file vfs.File) *tableOutput {
	o := &tableOutput{
		file:  file,
		parts: make(chan []byte, maxParts),
		free:  make(chan []byte, maxParts+2), // every part there ever is
		done:  make(chan struct{}),
	}
	for range maxParts + 1 { // the writer has one
		o.free <- nil
	}
	go o.run()
	return o
}

// run writes parts until there are no more. After an error it goes on taking
// them, so that nobody waits for it.
func (o *tableOutput) run() {
	defer close(o.done)
	for part := range o.parts {
		if o.failed.Load() == nil {
			if _, err := o.file.Write(part); err != nil {
				err = errors.Wrap(err, "lsm: write a table")
				o.failed.Store(&err)
			}
		}
		o.free <- part[:0]
	}
}

// handOver gives a part away and returns an empty one, and the first error so far.
func (o *tableOutput) handOver(part []byte) ([]byte, error) {
	o.parts <- part
	return <-o.free, o.err()
}

// err is the first error.
func (o *tableOutput) err() error {
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// finish waits until all parts are written, and ends the goroutine.
func (o *tableOutput) finish() error {
	close(o.parts)
	<-o.done
	return o.err()
}
