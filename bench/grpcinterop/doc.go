// Package grpcinterop runs the cases of google.golang.org/grpc/interop over Boxcar, except those on
// HTTP/2, TLS, compression, gRPC's balancers and Google's credentials. It is in this module because
// the interop package imports libraries for OAuth, xDS and Google's cloud.
package grpcinterop
