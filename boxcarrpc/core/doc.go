// Package core decides; it does nothing.
//
// It holds the rules of Boxcar as state machines: the [Board] of a server, that
// hands out slot numbers, the [Ladder] of a client, that knows which of its
// slots is used next, the [LeaseSeeker], that says which server to ask for a better
// slot and when, [Subset], that says which servers of many a client uses at all,
// [Liveness], that says when a quiet connection is a dead one, and [Rate] and
// [Buckets], that say whether a server takes a request.
// The production client and server are thin shells around them, and a fleet
// simulator runs the very same types on virtual time.
//
// A state machine here has no goroutine, lock, channel, clock or randomness of
// its own and allocates nothing in a step. Time is an int64 of nanoseconds that
// the caller passes in, from any origin, never going back; randomness is a
// [math/rand/v2.PCG] that the caller owns; servers are int32 indexes that the
// caller gives out; the memory is slices that the caller may carve from one
// arena. A step returns what is to be done.
//
// Concurrency: none. The caller serialises the steps of a value.
//
// # The rules
//
// A server's board gives the lowest free number, atomically, if it is below
// what the client asks for, and else says what the lowest is:
//
//	taken  0 1 . 3      Lease(below 4) -> 2      Lease(below 2) -> refused, 2
//
// A client's ladder orders its free slots
//
//	by rank     servers that look healthy before servers that do not
//	by number   the lowest first
//	by rest     among equal numbers the one that has been idle longest
//
// and always uses the first. The last rule matters as much as the first two: a
// fixed order among equals would send all light traffic to a few servers.
//
// The rover asks a server, picked uniformly from the whole set, for a slot
// below the highest one in the ladder. Where the ladder is full it first asks the
// servers without a slot in it, since the others report their lowest free slot
// with each response. If the rover gets a slot, the highest one is given back. Since
// only a lower number ever replaces a higher one, the sum of the numbers falls with
// every swap and the swapping comes to an end; a rover whose ladder is flat slows
// down to a question a minute.
//
// # A slow server's share
//
// A server at half speed, one of ten, of ten clients with twenty slots each, gets of
// the requests of each other server, by how many slots of a client are busy:
//
//	busy     1     2     5    10    15    20 of 20
//	share  1.1   0.7  0.59  0.54  0.53  0.53
//
// A client that makes one call at a time goes to all servers of which it holds the
// lowest number in turn, and notices nothing.
package core
