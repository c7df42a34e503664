package table

import (
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
)

const (
	// writeBytes is the size and alignment of a write to a table.
	writeBytes = 256 << 10
	// lastingWriteBytes is the write size for long-lived tables, which are read more
	// often than written. It is the size of a huge page: Linux keeps the written data
	// in one folio and maps it as one page. Large folios are expensive on a virtual
	// machine whose host reclaims free memory: with this size for all tables a write
	// took 1,059 to 1,136 ns of processor time, with smaller writes 742 to 821 ns; a
	// hit took 787 to 935 ns, and 1,008 to 1,049 ns.
	lastingWriteBytes = 2 << 20
	// partOverhang is additional space in a part for a block that crosses its end.
	partOverhang = blockTargetBytes + maxPaddingBytes
	// firstPartBytes is the initial capacity of a part, sufficient for small tables.
	firstPartBytes = 128 << 10
	// maxParts is the number of parts that wait to be written.
	maxParts = 1
	// allParts also counts the one being filled and the one being written.
	allParts = maxParts + 2
	// writebackBytes is the amount of new data after which writeback starts, so that
	// the sync at the end, during which its flush or merge is idle, has little to write.
	writebackBytes = 2 << 20
)

// output writes a table to its file in a separate goroutine, so that a flush or
// merge, which produces the blocks, uses two processors. Moving the CRCs to that
// goroutine, too, was slower for both: it had to fetch the data that the other had just
// written.
//
// The goroutine runs from newOutput until finish, which must be called. Only
// parts, free and failed are shared with it.
type output struct {
	file   vfs.File
	parts  chan []byte
	free   chan []byte   // written parts, for reuse
	done   chan struct{} // closed when the goroutine has ended
	failed atomic.Pointer[error]
}

func newOutput(file vfs.File) *output {
	o := &output{
		file:  file,
		parts: make(chan []byte, maxParts),
		free:  make(chan []byte, allParts),
		done:  make(chan struct{}),
	}
	for range maxParts + 1 { // the writer has one
		o.free <- nil
	}
	go o.run()
	return o
}

// run writes parts until the channel is closed. After an error it discards them, so
// that the sender is not blocked.
func (o *output) run() {
	defer close(o.done)
	written, started := int64(0), int64(0) // offsets
	for part := range o.parts {
		if o.failed.Load() == nil {
			if _, err := o.file.Write(part); err != nil {
				err = errors.Wrap(err, "lsm: write a table")
				o.failed.Store(&err)
			}
			if written += int64(len(part)); written-started >= writebackBytes {
				vfs.StartWriteback(o.file, started, written-started)
				started = written
			}
		}
		o.free <- part[:0]
	}
}

// handOver passes a part to the goroutine and returns an empty one, and the first error
// so far.
func (o *output) handOver(part []byte) ([]byte, error) {
	o.parts <- part
	return <-o.free, o.err()
}

// err returns the first error.
func (o *output) err() error {
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// finish waits until all parts are written and ends the goroutine.
func (o *output) finish() error {
	close(o.parts)
	<-o.done
	return o.err()
}
