package docservice

import (
	"docstore/boxcarrpc"
	"docstore/docservice/internal/wire"
)

// Methods of the service over Boxcar.
const (
	MethodGet        = "/docstore.v1.Documents/Get"
	MethodBatchGet   = "/docstore.v1.Documents/BatchGet"
	MethodDictionary = "/docstore.v1.Documents/Dictionary"
	MethodScan       = "/docstore.v1.Documents/Scan"
	MethodStats      = "/docstore.v1.Documents/Stats"
)

// Limits of requests and responses.
const (
	// MaxBatchIDs is the maximum number of ids in a batch.
	MaxBatchIDs = wire.MaxBatchIDs
	// MaxReplyBytes is the maximum size of a response, which is that of Boxcar.
	MaxReplyBytes = boxcarrpc.MaxResponseBytes
	// DefaultScanIDs is the number of ids of a page if the request has no limit.
	DefaultScanIDs = 1000
	// MaxScanIDs is the maximum number of ids of a page.
	MaxScanIDs = 4096
)

// IdempotentMethods returns the methods that may be retried on another server, for
// boxcarrpc.PoolOptions.Methods: all of them, because they only read.
func IdempotentMethods() map[string]boxcarrpc.Method {
	idempotent := boxcarrpc.Method{Idempotent: true}
	return map[string]boxcarrpc.Method{
		MethodGet: idempotent, MethodBatchGet: idempotent, MethodDictionary: idempotent, MethodScan: idempotent, MethodStats: idempotent,
	}
}
