// Package mutation puts bugs into the rooms on purpose, one at a time, and
// makes sure that the tests notice: a sync that is left out, a checksum that is not
// compared, a manifest that is published early, a slot that is given out twice. A test
// that cannot fail for the bug it is there for is worth nothing, and nothing else
// would tell.
//
// A mutation is a change of text in a source file. The test gives the changed file to
// go test by an overlay, so that nothing is written where the sources are, and wants the
// named tests to fail: to run and fail, not to fail to build. One whose text is not
// there any more fails, too, and has to be brought up to date.
package mutation
