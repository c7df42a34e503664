// Package network simulates hosts and their TCP connections in the virtual time of a test bubble
// (testing/synctest).
//
//	n := network.New(chance.New(seed))
//	server, client := n.Host("10.0.0.1", "a").Boot(), n.Host("10.0.0.2", "b").Boot()
//	l, err := server.Listen("10.0.0.1:7070")
//	conn, err := client.Dial(ctx, "tcp", "10.0.0.1:7070")
//	heal := n.Cut(network.Zone("a"), network.Zone("b"))
//
// A Process is one incarnation of the programs on a host: Kill ends it like the kernel ends a
// killed process, its peers get resets; Vanish like a power cut, its peers get nothing. Its
// listeners and connections are closed, and it opens no others.
//
// # Connections
//
// A connection delivers the bytes of each Write, in order, after a latency of the link that is
// drawn by the key of the connection, and accepts window bytes that were not read yet. Packets
// that are lost by a Cut are sent again: the bytes arrive after the link has healed. A
// connection to a vanished host fails after keepAlive, or when it writes to the next
// incarnation. Errors are those of package net and the system calls.
//
// A connection costs no goroutine.
//
// # Faults
//
// Methods of Network and Host begin a fault, and return the function that ends it. All types are
// safe for concurrent use.
package network
