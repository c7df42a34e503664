// Chaos runs calls over a faulty network and accounts for each of them.
//
//	go run ./chaos                every fault once, without and with hedging
//	go run ./chaos -rounds 10
//
// Each server is a process in a network namespace with an interface whose packets this program
// carries: it delays, drops and corrupts them, so both ends run the kernel's TCP. Servers are also
// stopped, killed and restarted.
//
//	10.99.0.1        10.99.0.2        10.99.0.3        10.99.0.4
//	callers          server 1         server 2         server 3
//	   |                |                |                |
//	   +------ tun -----+----- link -----+------ tun -----+
//
// Every call has a number. A server counts its executions in a file shared with this program, so that
// kill -9 loses no count. A call must end with its own response or an error. A successful call was
// executed once, or at least once if its method is idempotent; a call with the error "not processed"
// was never executed; a call that is not idempotent was executed at most once.
//
// The longest gap is the longest time in which a caller had no successful call, separately for
// idempotent and other methods.
//
// It needs root on Linux for the namespaces.
package main
