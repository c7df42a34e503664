// Package attack has hostile peers attack a docserviced that may use 1 GiB of memory
// (--memory 256MiB) over Boxcar, HTTP and gRPC, one attack after another: bytes at random,
// announced lengths, floods, unread answers of every kind, slow readers, hoarded slots,
// connections and streams. The resident memory of the daemon must stay below 1 GiB, and a
// client that behaves must lose no call.
//
// Each attack lasts for -attack, 2 s if not said. With -attack-p99, as scripts/soak has it on
// a machine that does nothing else, the good client's 99th percentile is asserted too.
package attack
