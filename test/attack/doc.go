// Package attack tests a docserviced with --memory 256MiB against hostile peers over
// Boxcar, HTTP and gRPC, one attack after another: random bytes, announced lengths, floods,
// unread answers of every kind, slow readers, and peers that take slots, connections and
// streams. The resident memory of the daemon must stay below 1 GiB, and no call of a
// correct client and no probe of the health over a new connection may fail.
//
// Each attack lasts for -attack, by default 2 s. With -attack-p99, as scripts/soak sets it
// on an otherwise idle machine, the p99 of the good client is checked too.
//
// Real attackers run on other machines. Here they share the processors with the daemon and
// the good client, so they run in a separate process with the policy SCHED_IDLE: it
// gets the processor time that the other two leave. So the latency of the good client
// includes the work of the daemon for the attackers, but not the work of the attackers. The
// test logs the processor time of the daemon during each attack.
package attack
