// Package subset chooses the backends that each frontend connects to, for fleets
// that are too large for a full mesh.
//
// Frontends and backends are tasks numbered from 0. An [Algorithm] computes from
// these numbers alone which k backends one frontend uses, most preferred first.
// Each frontend computes its own subset without communication. The load on the
// backends is even because all frontends use the same algorithm.
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
// The scale runs from ++ (optimal) to -- (unsuitable for most uses). The shuffle of
// random is keyed: it changes little with the number of backends, except that it
// changes completely where that number crosses a power of four.
//
// The algorithms and the properties are those of Ward, Wankadia and Guliani,
// "Reinventing Backend Subsetting at Google", Communications of the ACM 66(5), 2023.
// README.md has measurements. Use rocksteadier if both sides have dense
// numbers. A frontend without a number uses rendezvous with a hash of its name as
// the number, which needs no coordination.
//
// The results are part of the protocol: frontends of two builds that computed
// different subsets would unbalance the load. The package therefore has its own
// generator and shuffle, and golden files test the results.
//
// Arguments outside their range are clamped, because the view of a changing set may
// be out of date. A negative frontend counts as 0. A frontend at or above frontends
// raises frontends. The subset is empty if there are no backends or k is not
// positive, and has all backends if k is larger than their number. Numbers are below
// [MaxTasks].
//
// An Algorithm has no state and is safe for concurrent use.
package subset
