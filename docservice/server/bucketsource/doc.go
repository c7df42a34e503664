// Package bucketsource serves collections that are published in an object store or a
// directory: whole ones, each a follow.Follower, or the shards that a placement in etcd assigns
// to the replica set of this server, each replica set a column.Column.
//
//	server.Start(server.Options{
//		Collections: []server.Collection{{Name: "jobs", Source: "s3://bucket/jobs"}},
//		Source:      bucketsource.New(bucketsource.Options{Downloads: publish.DefaultConcurrency}),
//		...
//	})
//
// It connects the parts: the store, etcd, other servers as sources of files, and the server
// that answers. The parts decide; this package has no rules for manifests,
// placement or readiness.
package bucketsource
