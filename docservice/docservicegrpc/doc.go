// Package docservicegrpc is the document service for gRPC: the code that protoc-gen-go-grpc
// generates from docservice.proto, and the server.
//
// NewDocumentsClient accepts a connection of grpc-go or of package boxcargrpc. [Documents]
// answers the calls with a Boxcar handler, on a server of grpc-go or of package boxcargrpc:
//
//	docservicegrpc.RegisterDocumentsServer(server, docservicegrpc.Documents(service.Handle))
//
// The package exists because it imports grpc-go, which clients of package docservice do not
// link. It must not know how the handler finds documents.
package docservicegrpc
