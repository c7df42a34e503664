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
//   - [ClientTLS], [ServerTLS] and [FirstFrame] begin a connection and explain why it failed,
//     as when the server speaks another protocol.
//
// Buffers are charged to a [budget.Account], nil for none, which limits the memory of all
// connections.
package conn
