// Package boxcargrpc runs gRPC's generated code over Boxcar: what protoc-gen-go and
// protoc-gen-go-grpc make, for all four kinds of call, unchanged, with gRPC's
// interceptors, health and reflection.
//
// # Use
//
// On the server, in the place of grpc.NewServer:
//
//	services := boxcargrpc.NewServices(&boxcargrpc.ServicesOptions{
//		UnaryInterceptors: []grpc.UnaryServerInterceptor{logging},
//	})
//	searchpb.RegisterJobsServer(services, implementation)
//	reflection.Register(services)
//	server := boxcarrpc.NewServer(services.Handle, &boxcarrpc.ServerOptions{
//		StreamHandler: services.HandleStream,
//	})
//
// On the client, in the place of grpc.NewClient:
//
//	pool, err := boxcarrpc.NewPool(servers, &boxcarrpc.PoolOptions{
//		Methods: boxcargrpc.Methods(searchpb.File_search_jobs_proto),
//	})
//	conn, err := boxcargrpc.NewClient(pool, nil)
//	response, err := searchpb.NewJobsClient(conn).Find(ctx, request)
//
// A program in examples/grpcstubs shows both. docs/grpc.md compares with gRPC and
// says what differs.
//
// # Concurrency
//
// Connections and Services are safe for concurrent use, once all services are
// registered. Streams are as grpc-go's: one goroutine receives, another may send.
//
// # On the wire
//
// A unary call is a call of Boxcar, on a slot; the three other kinds are streams of
// Boxcar, outside the slots. Nothing wraps a message: a request is the bytes of the
// message, so that a handler or a caller that does without this package reads and
// writes the same. The rest is in the metadata that Boxcar itself has for requests
// and responses; a wrapper within the payload would have worked without it, but
// only between programs that both use this package:
//
//	gRPC                        Boxcar
//	method                      method, with both slashes
//	message                     request, response or message of a stream
//	deadline, cancellation      the same
//	metadata of the request     metadata of REQUEST or OPEN; -bin values as they are
//	header                      metadata of RESPONSE or HEADER
//	trailer                     metadata of RESPONSE or STATUS
//	status                      code and message; with details as a whole in the trailer
//	                            under grpc-status-details-bin
//	codec                       metadata content-type, if not protobuf
//
// # Errors
//
// What a call returns is a status for package status, and Boxcar's *Error for
// errors.As: its Processed says whether the request may have been processed, where
// gRPC leaves that open. A handler's error is processed, whatever its code, unless
// it is [NotProcessed].
//
// # Limits
//
// Those of Boxcar: requests of 17 MiB, responses of 32 MiB, metadata of 16 KiB each
// way, messages of errors of 4 KiB. gRPC's defaults for the size of messages, 4 MiB,
// are not here; the call options for it are.
package boxcargrpc
