// Package memcached stores values in one or more memcached servers and tolerates their
// failure: the keys of a server that does not answer are misses until it answers again.
//
//	servers, err := memcached.New([]string{"cache-1:11211", "cache-2:11211"}, nil)
//	defer servers.Close()
//	value, ok := servers.Get(servers.Server(hash), key)
//
// It uses github.com/bradfitz/gomemcache, with a client for each server.
//
// # Server selection
//
// A key belongs to the server with the highest rank for the hash of the key (rendezvous
// hashing; the caller computes the hash, because it may have a shorter form of the key). An
// added server takes an equal share of the keys of all others, a removed one leaves its keys
// to them, and no other key moves. A server that is down keeps its keys: they are misses
// until it is up again.
//
// # Failures
//
// Three consecutive failures mark a server as down ([FailuresToOpen]): a refused or broken
// connection, or a response that takes longer than Options.Timeout. From then on a call for
// its keys returns at once, for the cost of an atomic load. A goroutine probes the server,
// first after a second and then at intervals of up to half a minute, until it answers. If
// the server fails again within half a minute, the first pause is doubled. A server that
// answers with an error, for example for an item over its limit, is not down.
//
// # Limits
//
// Responses are checked before they are used: a value has at most [MaxItemBytes], and the
// response to a command at most 16 MiB. A larger response closes the connection and counts
// as a failure.
//
// All methods are safe for concurrent use. Values are not verified here: the caller must
// detect wrong ones.
package memcached
