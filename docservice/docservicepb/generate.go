// Package docservicepb is the document service in protobuf, generated from
// docservice.proto. To change it, change that file and run
//
//	go generate ./docservice/docservicepb
//
// which needs protoc on the PATH; the Go plugin is built from the version of
// google.golang.org/protobuf that go.mod names.
package docservicepb

//go:generate sh generate.sh
