// Package docservicepb contains the messages of the document service, generated from
// docservice.proto. The service itself is in package docservicegrpc, which imports grpc-go.
// To change them, edit that file and run
//
//	go generate ./docservice/docservicepb
//
// It needs protoc in the PATH. The plugin for messages is built from the
// version of google.golang.org/protobuf that go.mod names, and the one for
// services has its version in scripts/generate-proto.
package docservicepb

//go:generate sh ../../scripts/generate-proto docservice/docservicepb/docservice.proto docservice/docservicegrpc
