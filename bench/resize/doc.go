// Resize is the experiment of figure 5 in Ward, Wankadia and Guliani, "Reinventing
// Backend Subsetting at Google" (2023), with Boxcar's clients and servers: frontends send
// requests while the number of backends changes in steps.
//
//	go run ./resize    takes 5 minutes
//
// It runs for every algorithm, with new connections made before old ones are
// closed (the default of a pool) and after. The trials are interleaved over several
// rounds, so that other load on the machine affects all alike.
//
//	change                    settled                next change
//	|----- -settle ------------|----- the rest --------|
//	  cost of the change         baseline                of -every
//
// Servers and clients are in this process, on loopback addresses, with mutual TLS. The
// processor time includes both sides. The cost of a change is its processor time minus
// that of the baseline: mainly handshakes. Requests are an open-loop load; latency
// includes the delay of late requests.
//
// It requires Linux, where all of 127.0.0.0/8 is local.
package main
