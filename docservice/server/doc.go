// Package server serves documents by id: it tails queue directories into indexes, answers over
// Boxcar and HTTP, and reports its health, its state on a page, and metrics. docserviced is this
// package with flags. A program embeds it:
//
//	s, err := server.Start(server.Options{
//		Collections: []server.Collection{{Name: "jobs", Source: "/srv/queue/jobs"}},
//		DataDir:     "/srv/index",
//		Boxcar:      "127.0.0.1:7070",
//		HTTP:        server.HTTP{Address: "127.0.0.1:7071"}, // also /readyz and /metrics
//	})
//	if err != nil {
//		return err
//	}
//	<-ctx.Done()
//	return s.Stop(10 * time.Second)
//
// A Source adds collections that are elsewhere (package bucketsource: an object store, or the
// shards of a replica set), a Protocol another listener (package grpcserver), a Tracer spans;
// without them the package links none of their libraries.
//
// # Guarantees
//
//   - Start refuses to serve other hosts in plain text or without authentication unless the
//     options say so.
//   - Options.Memory bounds the indexes, dictionaries, requests and responses of all collections
//     and listeners together.
//   - /readyz is 200 once every collection has read its queue to the end.
//   - Only one process uses a data directory. Stop finishes the requests in flight within the
//     grace period, and returns when all goroutines have ended.
//
// All methods of a Server may be called concurrently, except Apply and Stop.
//
// The package knows neither flags nor signals, and not how a source gets its files.
package server
