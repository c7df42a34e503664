// Package core implements the rules of Boxcar as state machines without I/O.
//
//	Board           slot numbers of a server
//	Ladder          slots of a client, in the order of use
//	LeaseSeeker     which server to ask for a lower slot, and when
//	Client          a Ladder with its LeaseSeeker; whether calls may wait for a slot
//	Subset          which servers of a large set a client uses
//	RetryBudget     whether a client may retry
//	Liveness        whether a connection without traffic is dead
//	Times           percentiles of response times
//	Pipeline        when a server writes finished responses
//	Rate, Buckets   whether a server admits a request
//	Unauthenticated which connection without credentials a server closes for a new one
//
// The client and the server of package boxcarrpc are shells around these types. A fleet
// simulator runs the same types on virtual time.
//
// The types have no goroutines, locks, channels, clocks or random sources, and a step
// does not allocate. Times are int64 nanoseconds from any origin that the caller passes
// in and that never decrease. Random numbers come from the caller's
// [math/rand/v2.PCG]. Servers are int32 indexes that the caller assigns. The memory is
// slices that the caller may carve from one arena.
//
// A value is not safe for concurrent use.
//
// # Rules
//
// A server's board atomically leases the lowest free number if it is below the limit
// of the client. Otherwise it returns the lowest free number with the refusal:
//
//	taken  0 1 . 3      Lease(below 4) -> 2      Lease(below 2) -> refused, 2
//
// A client's ladder orders its free slots and always uses the first:
//
//	by rank        slots of healthy servers first, of these the ones of idle servers
//	by number      lowest first
//	by idle time   longest first
//
// The last rule is necessary: a fixed order among equal numbers would send all light
// traffic to a few servers.
//
// The numbers of servers in other zones are raised above all others: see [Ladder.SetFar].
//
// The lease seeker asks a server, picked uniformly from the set, for a slot below the
// highest one in the ladder. If the ladder is full it first asks the servers without a
// slot in it, because the others report their lowest free slot with each response. A
// gained slot replaces the highest one, which is given back. Only a lower number
// replaces a higher one, so the sum of the numbers decreases with every swap and
// swapping ends. A seeker that gains nothing slows down to a request a minute, but not
// before 128 requests after the ladder has filled: the other clients swap, too. That of a
// client without calls slows down to a request in a quarter of an hour.
//
// A silent server delays no request to another. After 50 ms a lease request no longer
// counts for the limit of concurrent ones, and its server no longer has a share of the
// slots. A server that broke is probed after its quarantine, and is asked like the others
// when it has answered. Four probes are in progress at a time; without slots, a probe counts
// for 50 ms, too.
//
// # Share of a slow server
//
// Ten clients with twenty slots each use ten servers, one of them at half speed. Its
// requests relative to another server's, by the number of busy slots of a client:
//
//	busy     1     2     5    10    15    20 of 20
//	share  1.1   0.7  0.59  0.54  0.53  0.53
//
// A client that makes one call at a time uses all servers of its lowest number in
// turn, whatever their speed.
package core
