// Resize is the experiment of figure 5 in Ward, Wankadia and Guliani, "Reinventing
// Backend Subsetting at Google" (2023), with Boxcar's own clients and servers:
// frontends send requests while the number of backends goes up and down in steps,
// and while backends are restarted, a block of consecutive ones after the other.
//
//	go run ./resize                          the resize, 5 minutes long
//	go run ./resize -scenario restart        tasks that are restarted leave the list meanwhile, as with etcd
//	go run ./resize -scenario restart-listed they keep their places, as with given numbers
//
// Each scenario is run for every algorithm that is asked for, with new connections
// made before old ones are given up, as is the default of a pool, and after it; and
// all that several times in turn, so that what else the machine does strikes all alike.
//
//	change                    settled                next change
//	|----- -settle ------------|----- the rest --------|
//	  what the change costs      what it costs always    of -every
//
// Servers and clients are in this process, on loopback addresses, with TLS and
// certificates on both sides. So the processor time is that of both sides
// together; that of a change is what it takes over that of as long a time when all
// has settled: handshakes, mainly. Requests come at random times, at the same rate
// whatever becomes of them, and latency counts from the time at which each was due.
//
// It needs Linux, for which all of 127.0.0.0/8 is this host.
package main
