//go:build unix

package boxcarrpc

import (
	"net"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A kernelConn reports each write(2) before the kernel has it.
type kernelConn struct {
	write func()
}

func (c kernelConn) Control(func(fd uintptr)) error   { panic("unused") }
func (c kernelConn) Read(func(fd uintptr) bool) error { panic("unused") }
func (c kernelConn) Write(func(fd uintptr) bool) error {
	c.write()
	return net.ErrClosed
}

// The connection ends while write(2) runs, before the writer knows its result: the
// request may be at the server.
func TestARequestCountsAsSentBeforeItsWrite(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	var o outbox
	o.init(client, 0, func(error) {})
	during := false
	o.socket = &socket{conn: kernelConn{func() { during = o.reached(0) }}}
	o.ping(1, 1)
	o.flush(false)
	require.True(t, during, "counted when the write began")
	require.False(t, o.reached(0), "the kernel took nothing")
}

// A deadline without a monotonic clock reading, as of a parsed time, is compared with
// the wall clock of now, not with that of the pool's start.
func TestADeadlineOfTheWallClockAfterAClockStep(t *testing.T) {
	start := time.Now()
	(*struct {
		wall      uint64
		monotonic int64
	})(unsafe.Pointer(&start)).monotonic -= int64(time.Hour) // the wall clock was set back by an hour since
	left := func(deadline time.Time) time.Duration { return monotonic(deadline).Sub(start) - time.Since(start) }
	require.InDelta(t, time.Minute, left(time.Now().Add(time.Minute)), float64(10*time.Second))
	require.InDelta(t, time.Minute, left(time.Now().Add(time.Minute).Round(0)), float64(10*time.Second))
}
