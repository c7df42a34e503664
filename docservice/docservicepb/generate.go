// Package docservicepb contains the code generated from docservice.proto, the document
// service in protobuf. To change it, edit that file and run
//
//	go generate ./docservice/docservicepb
//
// It needs protoc in the PATH. The plugin for messages is built from the
// version of google.golang.org/protobuf that go.mod names, and the one for
// services has its version in scripts/generate-proto.
//
// NewDocumentsClient accepts a connection of grpc-go or of package boxcargrpc.
package docservicepb

//go:generate sh ../../scripts/generate-proto docservice/docservicepb/docservice.proto
