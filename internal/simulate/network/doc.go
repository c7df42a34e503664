// Package network simulates hosts and their TCP connections in the virtual time of a test bubble
// (testing/synctest).
//
//	n := network.New(chance.New(seed))
//	server, client := n.Host("10.0.0.1", "a").Boot(), n.Host("10.0.0.2", "b").Boot()
//	l, err := server.Listen("10.0.0.1:7070")
//	conn, err := client.Dial(ctx, "tcp", "10.0.0.1:7070")
//	heal := n.Cut(network.Zone("a"), network.Zone("b"))
//
// A Process is one incarnation of the programs on a host. Kill ends it like the kernel ends a
// killed process: its listeners and connections are closed. Vanish ends it like a power cut: its
// peers get nothing. An ended process opens no connections.
//
// # Connections
//
// A connection delivers the bytes of each Write, in order, after a latency of the link that is
// drawn by the key of the connection, and accepts window bytes that were not read yet. An end
// learns from packets only what its peer does:
//
//   - Close sends the end of the bytes, or a reset if received bytes were not read. Later bytes
//     to that end are answered by a reset.
//   - Packets that are lost by a Cut are sent again. The waits double from 0.2 s to 2 min, so
//     that after an outage a connection stays silent up to as long as the outage was.
//   - During an outage a connection fails with ETIMEDOUT after 150 s, or after 924 s if bytes
//     wait; its peer gets a reset when it sends.
//   - A host that boots after Vanish answers bytes and probes, every 15 s, by a reset.
//   - The first packet of a connection is sent again after 1, 3, 7, ... seconds, for 127 s.
//
// These are the rules and times of Linux and of Go's keep-alive. Errors are those of package net
// and the system calls.
//
// A connection costs no goroutine, and a message and its answer about 4 us of processor time.
//
// # Faults
//
// Methods of Network and Host begin a fault, and return the function that ends it. All types are
// safe for concurrent use.
package network
