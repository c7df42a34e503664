// Package subset chooses which backends a frontend connects to, when there are
// too many of both for everybody to connect to everybody.
//
// Frontends and backends are tasks numbered from 0. An [Algorithm] tells one
// frontend which k of the backends it uses, most preferred first, from these
// numbers alone: all frontends compute their own subset, without talking, and
// the load on the backends is even because they all use the same rule.
//
//	                          churn with the number of
//	algorithm      balance  frontends backends subset size  diversity  spread  time
//	random            -         ++       -         ++          ++        -     k
//	roundrobin        ++        ++       --        --          --        --    k
//	deterministic     +         ++       --        --          ++        -     k
//	consistent        -         ++       ++        ++          -         -     backends
//	rendezvous        -         ++       ++        ++          ++        -     backends
//	ringsteady        +         ++       ++        ++          -         ++    k + log(backends)
//	rocksteadier      +         ++       ++        ++          ++        ++    k + log(backends)
//
// From ++, as good as can be, to --, unusable for many. Random's shuffle is keyed
// and changes little with the number of backends, but wholly where that passes a
// power of four.
//
// They are those of Ward, Wankadia and Guliani, "Reinventing Backend Subsetting
// at Google", Communications of the ACM 66(5), 2023, which defines the
// properties; docs/subsetting.md measures them. Rocksteadier is the one to use
// where both sides have dense numbers. A frontend without a number of its own
// takes rendezvous with a number made of its name: that needs no coordination.
//
// What an algorithm returns is part of the protocol: frontends of two builds
// that differed would break the balance. Generator and shuffle are therefore
// our own, and golden files hold them fast.
//
// Numbers outside their range are clamped, because the views of a set that
// changes lag: a frontend below 0 counts as 0; one not below frontends makes
// frontends larger; nothing is chosen from no backends, or if k is not positive;
// k over backends chooses all. Numbers are below [MaxTasks].
//
// Concurrency: an Algorithm has no state, and any number of goroutines may use
// it at once.
package subset
