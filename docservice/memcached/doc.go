// Package memcached keeps values in one or more memcached servers and makes
// light of it when they are away: a server that does not answer is left alone
// until it does, and meanwhile its keys are simply not there.
//
//	servers, err := memcached.New([]string{"cache-1:11211", "cache-2:11211"}, nil)
//	defer servers.Close()
//	value, ok := servers.Get(servers.Server(hash), key)
//
// It speaks through github.com/bradfitz/gomemcache, a client for each server.
//
// # Which server
//
// A key is kept by the server that is highest in the ranking of them that a hash
// of the key makes (rendezvous hashing; the caller hashes, for he may know the
// key in a shorter form): a server that is added takes its share of the keys from
// all others, one that is removed leaves its share to them, and no other key
// moves. A server that is away keeps its keys: they are fetched from elsewhere for
// that while and are there again afterwards.
//
// # When a server is away
//
// Three failures one after the other take a server out of use ([FailuresToOpen]):
// a refused or broken connection, or an answer that takes longer than
// Options.Timeout. From then on a call for its keys returns at once, and costs as
// much as reading an atomic. A goroutine asks the server whether it is back, a
// second later at first and half a minute at most, and takes it into use again. If
// it goes again within half a minute it is left alone for twice as long at first.
// A server that answers but refuses, as it does with items over its limit, is
// not away.
//
// # When a server lies
//
// Its answers are bounded before they are believed: a value has [MaxItemBytes] at
// most, and all that comes in answer to a command 16 MiB. Beyond that the connection
// is closed, and it counts as a failure.
//
// All methods may be called from many goroutines at once. What a server returns is
// not verified here: who puts values in has to know them again.
package memcached
