// Chaos runs calls over a network that breaks and gives an exact account of them.
//
//	go run ./chaos                       every fault once, Boxcar beside grpc-go
//	go run ./chaos -rounds 10 -rivals boxcar
//
// Servers are processes, each in a network namespace of its own with an interface
// whose packets this program carries: it delays, loses, cuts and falsifies them, so
// that both ends run the kernel's own TCP and notice nothing but the network. Servers
// are stopped, killed and started again as well.
//
//	10.99.0.1        10.99.0.2        10.99.0.3        10.99.0.4
//	callers          server 1         server 2         server 3
//	   |                |                |                |
//	   +------ tun -----+----- link -----+------ tun -----+
//
// Every call has a number. A server counts in a file that it shares with this
// program how often it has begun with each, so that kill -9 loses no count. A call
// must end with its own answer, or with an error; without an error it was done once,
// or at least once if its method is idempotent; with an error that says it was not
// processed it was never done; and no call that is not idempotent is done twice.
//
// The longest gap is the longest time for which any caller had no good answer: of
// those whose method is idempotent, and of the others, whose calls may fail.
//
// It needs Linux and its root, for the namespaces, and no other program.
package main
