// Package policy implements load balancing policies of clients, to compare slots with
// others in the fleet simulator.
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
//	prequal       of some probed the quickest that is not crowded      probes of load
//
// Slots is Boxcar, the policy of boxcarrpc's pools. Formulaic, viamedia and knotty are the
// approaches of a design for 10,000 frontends and 1,000,000 backends. The others are in
// common use. bench/fleet/README.md compares them.
//
// A [Policy] is a state machine without goroutines, locks, clocks or random sources. A
// step does not allocate once the policy has grown to its set.
//
//	Join, Leave     change the set of servers
//	Pick, Done      start and end a request
//	Next, Wake      return the next action: connect, disconnect, probe
//	Learn           passes results of actions and other news of a server
//
// Times are int64 nanoseconds from any origin and never decrease. The caller assigns
// server numbers from 0 and owns the random generator.
//
// A value is not safe for concurrent use.
package policy
