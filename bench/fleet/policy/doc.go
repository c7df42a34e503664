// Package policy holds the rules by which a client spreads its requests.
//
//	name          chooses                                              knows
//	slots         the lowest slot number that the servers gave out     leases
//	formulaic     the next of a fixed set, passing over broken ones    probes that keep alive
//	viamedia      a pooled connection, else a server at random         nothing
//	knotty        one of the best K by tokens, latency and sessions    gossip of the servers
//	random        any                                                  nothing
//	roundrobin    the next                                             nothing
//	p2c           of two at random the one with fewer requests         its own requests
//	leastrequest  the one with the fewest requests                     its own requests
//	peakewma      of two at random the one expected to be done sooner  its own requests and times
//	prequal       of some probed the quickest that is not crowded      probes of load
//
// Slots is Boxcar, and what a pool does if nothing else is said; the first three
// after it are the approaches of a design for 10,000 frontends and 1,000,000
// backends, the others are the usual rivals. docs/balance.md compares them.
//
// A [Policy] is a state machine: it has no goroutine, lock, clock or randomness of
// its own, and after it has grown to its set it allocates nothing in a step. It is
// told what happens and says what to do, so that the same code serves in a pool
// and in the fleet simulator:
//
//	Join, Leave     the set of servers
//	Pick, Done      a request begins, and ends
//	Next, Wake      what the policy wants done now: connect, disconnect, probe
//	Learn           what came of it, and what else is heard of a server
//
// Time is an int64 of nanoseconds from any origin that never goes back; servers
// are numbers that the caller gives out, from 0; randomness is the caller's.
//
// Concurrency: none. The caller serialises the steps of a value.
package policy
