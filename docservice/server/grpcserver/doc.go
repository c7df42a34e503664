// Package grpcserver serves documents, the health of the server and reflection over gRPC, for
// languages without a Boxcar client:
//
//	server.Start(server.Options{Protocol: grpcserver.New(grpcserver.Options{Address: ":7072"}), ...})
//
// A call passes the admission control of the Boxcar listener, and its bytes count against the
// same budget. The package knows neither collections nor indexes: requests and responses are
// passed to and from the handler of documents as they are encoded.
package grpcserver
