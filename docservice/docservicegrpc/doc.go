// Package docservicegrpc is the code that protoc-gen-go-grpc generates from docservice.proto.
// NewDocumentsClient accepts a connection of grpc-go or of package boxcargrpc.
//
// The package exists because it imports grpc-go, which clients of package docservice do not
// link.
package docservicegrpc
