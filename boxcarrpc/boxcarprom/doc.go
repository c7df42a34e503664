// Package boxcarprom shows servers and pools of boxcarrpc to Prometheus.
//
//	metrics := boxcarprom.NewServer(nil)
//	server := boxcarrpc.NewServer(handler, metrics.Instrument(&boxcarrpc.ServerOptions{}))
//	metrics.Watch(server)
//	prometheus.MustRegister(metrics)
//
// and for a pool the same with NewPool. What servers and pools count already is
// asked of them when it is scraped; only methods, codes, times and slots are taken
// down with each call, by interceptors, in about 0.3 us and without an allocation: of a
// lone caller's 14 us on one host nothing is to be seen (BenchmarkCall). docs/metrics.md
// lists all.
//
// Methods are labels, and clients choose them. A server has at most 256, and those
// that its handler answers with CodeUnimplemented or CodePermissionDenied get none
// of their own: they, and what is beyond, count under the method "other".
//
// All is safe for concurrent use.
package boxcarprom
