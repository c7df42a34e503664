// Package grpcinterop runs grpc-go's interoperability cases over Boxcar: its own
// test service, and its own clients that look whether everything comes through.
// They are those of google.golang.org/grpc/interop that are not about HTTP/2, TLS,
// compression, gRPC's balancers or Google's credentials. They are here, and not beside boxcargrpc,
// because that package imports libraries for OAuth, xDS and Google's cloud.
package grpcinterop
