// Package hotcache measures whether a cache of hot documents in the daemon would pay, in addition to
// mapped segments in the page cache:
//
//	cd bench && go test ./hotcache -run '^$' -bench . -cpu 1
//
// It fetches documents by address, Zipf distributed, from a queue.Reader with and without a cache of
// its results, stored and decoded. docs/lsm.md has the result.
package hotcache
