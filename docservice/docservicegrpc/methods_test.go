package docservicegrpc

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"docstore/boxcarrpc/boxcargrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
)

// Package docservice lists the idempotent methods; docservice.proto declares them.
func TestIdempotentMethods(t *testing.T) {
	assert.Equal(t, boxcargrpc.Methods(docservicepb.File_docservice_docservicepb_docservice_proto), docservice.IdempotentMethods())
}
