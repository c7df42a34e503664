// Package invariants switches on checks that cost too much for production.
//
// Code asks
//
//	if invariants.Enabled && !sorted(keys) {
//		panic("lsm: keys out of order")
//	}
//
// and the compiler drops the check unless the build has the tag invariants:
//
//	go test -tags invariants ./...
//
// Such a check guards against programmers' errors only. What a disk or a peer
// can get wrong is checked in every build and returned as an error.
package invariants
