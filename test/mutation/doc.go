// Package mutation tests the tests: it inserts one bug at a time into the source, for example
// a missing sync, a checksum that is not compared, or a slot that is assigned twice, and
// verifies that the tests named with the bug fail.
//
// A mutation replaces text in a source file. The changed file is passed to go test as an
// overlay, so the source is not modified. The named tests must run and fail; a build failure
// does not count. A mutation whose text or tests no longer exist fails and must be updated.
//
// Continuous integration runs the mutations marked as sample and verifies that the others
// apply; make soak runs all. To run one: go test ./test/mutation -run 'TestMutations/NAME'.
package mutation
