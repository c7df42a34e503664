// Package docservicepb is the document service in protobuf, generated from
// docservice.proto. To change it, change that file and run
//
//	go generate ./docservice/docservicepb
//
// which needs protoc on the PATH; the plugin for messages is built from the
// version of google.golang.org/protobuf that go.mod names, and the one for
// services has its version in scripts/generate-proto.
//
// NewDocumentsClient takes a connection of grpc-go or one of package boxcargrpc.
package docservicepb

//go:generate sh ../../scripts/generate-proto docservice/docservicepb/docservice.proto
