// Package invariants enables checks that are too expensive for production.
//
// Code such as
//
//	if invariants.Enabled && !sorted(keys) {
//		panic("lsm: keys out of order")
//	}
//
// is removed by the compiler unless the build has the tag invariants:
//
//	go test -tags invariants ./...
//
// Such checks detect programming errors only. Errors of disks and peers are detected in
// every build and returned as errors.
package invariants
