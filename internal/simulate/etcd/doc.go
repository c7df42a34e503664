// Package etcd simulates an etcd in the virtual time of a test bubble (testing/synctest).
//
//	s := etcd.New()
//	go s.Serve(listener)
//	client, err := clientv3.New(clientv3.Config{Endpoints: ..., DialOptions: ...})
//
// It speaks the API of etcd 3: keys with revisions, transactions, watches from a revision, and
// leases that expire by the clock of the bubble. Keys, values and leases are kept in memory over
// Stop and Serve. As of etcd, a transaction has one revision, and a watch delivers all its events
// in one response.
//
// Not simulated: users, authentication, and the members of a cluster; one server answers for all.
//
// # Faults
//
// Stop ends all connections. Compact discards old revisions: watches that begin before get an
// error. Restore replaces the state by an earlier Backup, as after the loss of a majority: the
// revision goes back. All types are safe for concurrent use.
package etcd
