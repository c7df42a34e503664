// Package conn is the connection layer of boxcarrpc. It moves frames between memory and
// a socket, and knows nothing of pools, servers, lanes or handlers.
//
//   - An [Outbox] collects the frames to send and writes them in batches. Any goroutine
//     may append; one goroutine at a time holds the write turn and writes.
//   - A [Reader] splits the received bytes into frames. One goroutine at a time reads:
//     the holder of the read turn, which boxcarrpc assigns.
//   - [NewTLSBatchConn] makes a connection beneath a *tls.Conn that lets the Outbox write
//     a batch of TLS records at once, without blocking.
//   - [Tune] and [Close] set up and end a socket.
//
// Buffers are charged to an [Account], which limits the memory of all connections.
package conn

// An Account is charged for the buffers of a connection. Its methods may be called
// concurrently, and with the locks of an Outbox held: they must not call back into it.
type Account interface {
	// Charge adds n bytes of buffers, Release removes them.
	Charge(n int64)
	Release(n int64)
	// Tight reports whether memory is scarce, so that idle buffers must be freed.
	Tight() bool
	// Await records that the peer is to take n bytes, Moved that it has taken them.
	Await(n int)
	Moved(n int)
}

// NoAccount is an Account that does nothing.
type NoAccount struct{}

// Charge implements Account.
func (NoAccount) Charge(int64) {}

// Release implements Account.
func (NoAccount) Release(int64) {}

// Tight implements Account.
func (NoAccount) Tight() bool { return false }

// Await implements Account.
func (NoAccount) Await(int) {}

// Moved implements Account.
func (NoAccount) Moved(int) {}
