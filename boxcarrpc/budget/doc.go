// Package budget limits what the clients of a process may use: memory of messages,
// processor time, and requests in flight and per second.
//
// # Use
//
// A process has one [Budget], which servers of several protocols share. A server opens an
// [Account] for each connection, charges it for the bytes that it holds for the peer, and
// calls Batch and Spend around its work. A handler calls these functions with the context of
// its request:
//
//	if err := budget.Reserve(ctx, size); err != nil { // may wait
//		return dst, err
//	}
//	err := budget.Compute(ctx, size, func() { dst = decode(dst) })
//
// Without the context of a server they do nothing but run the step, so that the same code
// runs in tools and tests.
//
// A [Gate] admits requests within an [Admission], before a handler sees them.
//
// # Guarantees
//
//   - A charge succeeds at once, because the bytes exist already. When the budget is
//     exceeded, the peers that are slowest to transfer their bytes are disconnected.
//   - A reservation, for bytes that are about to be allocated, waits at most ten seconds.
//     The reservations of a client are granted in the order of their arrival, but those of
//     responses that grow first. One of these does not wait for the others.
//   - A client holds at most an eighth of the budget, and one more message.
//   - While the processors are short, a processor stays free for clients below their share.
//   - Batch requests leave a quarter of each limit of an Admission free for others, and one
//     client cannot use up the rate of all.
//   - Charge, Release and Spend take no lock, except once for 64 KiB or two milliseconds. A
//     Gate takes one only for a rate per client or for batch.
//
// # Concurrency
//
// All methods may be called concurrently. The lock order is Budget, processors; neither is
// held while a connection is disconnected.
//
// # Limits of knowledge
//
// The package knows connections only by their accounts and clients only by a [Client]: it
// imports package core and no protocol, and returns errors without a code.
package budget
