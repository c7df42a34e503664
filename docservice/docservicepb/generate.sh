#!/bin/sh
# Makes docservice.pb.go from docservice.proto. Needs protoc.
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
protoc --plugin="$bin/protoc-gen-go" \
	--go_out=. --go_opt=paths=source_relative \
	docservice/docservicepb/docservice.proto
