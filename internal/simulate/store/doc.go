// Package store simulates an object store in the virtual time of a test bubble
// (testing/synctest).
//
//	s, err := store.New(chance.New(seed))
//	view := s.For("server-1", reachable)            // what this host sees
//	client, err := bucket.NewClient(view, bucket.Options{})
//
// A request takes the time of an S3 request. As S3 the store is strongly consistent, and of several
// concurrent creations of an object one succeeds. A request whose context ends before its response
// may or may not have been executed. Info.Modified is not set.
//
// # Faults
//
// Methods begin a fault and return the function that ends it: the store is away, answers nothing or
// refuses all; requests fail, are slow or too many; responses are lost, break off or stall, also
// within a list; Puts are executed late, after the client has given up or repeated them; bits of objects
// that readers verify are wrong in responses. Stale or
// reordered answers are not simulated: package bucket does not permit them, and bucket.Check
// detects such a store.
//
// All types are safe for concurrent use.
package store
