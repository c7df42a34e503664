// Package etcdlog orders the commits of published collections in etcd.
//
//	arbiter, err := etcdlog.Open("10.0.0.1:2379,10.0.0.2:2379", nil)
//	defer arbiter.Close()
//	p, err := publish.OpenPublisher(ctx, publish.WithArbiter(b, arbiter), dir, nil)
//
// # Keys
//
// The name of a key is the incarnation of a collection's record:
//
//	PREFIX/INCARNATION/commit   the newest commit, as in the object commit/N of the bucket
//	PREFIX/INCARNATION/owner    the publisher, with its lease
//	PREFIX/INCARNATION/number   the numbers of the newest commit and increment in the bucket
//
// A commit is a transaction that replaces the first key if it has not changed and, for a
// publisher, if the second key was created by this publisher. The lease of a publisher that
// is killed, stopped or partitioned ends, and with it the key; when the process continues,
// its transactions fail.
//
// Servers watch the third key, and read commits from the bucket. They need read permission
// below PREFIX/, publishers and operators also write permission.
package etcdlog
