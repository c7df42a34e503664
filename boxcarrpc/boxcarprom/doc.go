// Package boxcarprom exports metrics of boxcarrpc's servers and pools to Prometheus.
//
//	metrics := boxcarprom.NewServer(nil)
//	server := boxcarrpc.NewServer(handler, metrics.Instrument(&boxcarrpc.ServerOptions{}))
//	metrics.Watch(server)
//	prometheus.MustRegister(metrics)
//
// For a pool use NewPool in the same way. A scrape reads the counters of servers and
// pools. Interceptors record the method, code, time and slot of each call, in about
// 0.3 us and without allocation; BenchmarkCall shows no difference for a single caller's
// calls of 14 us on one host. docs/metrics.md lists all metrics.
//
// The method is a label, and clients choose it. To bound the labels, a server has at most
// 256 methods, and methods that its handler answers with CodeUnimplemented or
// CodePermissionDenied get no label. The others have the method "other".
//
// All types are safe for concurrent use.
package boxcarprom
