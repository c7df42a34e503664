// Package hotcache measures whether a cache of hot documents in the daemon's process
// would be worth its memory, beside segments that are mapped and in the page cache:
//
//	cd bench && go test ./hotcache -run '^$' -bench . -cpu 1
//
// It fetches documents by address, asked for by Zipf's law, from a queue.Reader alone,
// and through a cache of the Reader's answers, in the two forms in which a daemon
// serves them: as they are stored, and decoded. docs/serving.md has the outcome.
package hotcache
