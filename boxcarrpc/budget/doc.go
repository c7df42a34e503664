// Package budget limits what the clients of a process may use: memory of messages and
// processor time.
//
// # Use
//
// A process has one [Budget], which servers of several protocols share. A server opens an
// [Account] for each connection, charges it for the bytes that it holds for the peer, and
// calls Batch and Spend around its work. A handler calls three functions with the context of
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
// # Guarantees
//
//   - A charge succeeds at once, because the bytes exist already. When the budget is
//     exceeded, the peers that are slowest to transfer their bytes are disconnected.
//   - A reservation, for bytes that are about to be allocated, waits at most ten seconds.
//     The reservations of a client are granted in the order of their arrival.
//   - A client holds at most an eighth of the budget, and one more message.
//   - While the processors are short, a processor stays free for clients below their share.
//   - Charge, Release and Spend take no lock, except once for 64 KiB or two milliseconds.
//
// # Concurrency
//
// All methods may be called concurrently. The lock order is Budget, processors; neither is
// held while a connection is disconnected.
//
// # Limits of knowledge
//
// The package knows connections only by their accounts and clients only by a [Client]: it
// must not import a protocol, and returns errors without a code.
package budget
