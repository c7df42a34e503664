package boxcarrpc

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"docstore/boxcarrpc/internal/wire"
)

// MaxMetadataBytes is the largest block of metadata. Header and trailer of a response count
// together.
const MaxMetadataBytes = wire.MaxMetadataBytes

// Metadata is a list of pairs of a key and a value that is sent with a request, a response
// or a stream, in its encoding on the wire. A key has at least one byte, by convention
// lower-case letters and hyphens, and may occur more than once. The zero Metadata has no
// pairs and adds nothing to a frame.
//
// A block has at most [MaxMetadataBytes]. Metadata received from a peer is always well
// formed.
type Metadata []byte

// Append appends a pair and returns the extended block.
func (m Metadata) Append(key, value string) Metadata { return wire.AppendPair(m, key, value) }

// Get returns the first value of a key. ok reports whether there is one.
func (m Metadata) Get(key string) (value string, ok bool) {
	k, v, rest, ok := wire.CutPair(m)
	for ; ok; k, v, rest, ok = wire.CutPair(rest) {
		if string(k) == key {
			return string(v), true
		}
	}
	return "", false
}

// All iterates over the pairs in their order, up to the first malformed one.
func (m Metadata) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		k, v, rest, ok := wire.CutPair(m)
		for ; ok && yield(string(k), string(v)); k, v, rest, ok = wire.CutPair(rest) {
		}
	}
}

// check returns an error if the metadata cannot be sent.
func (m Metadata) check() error {
	switch {
	case len(m) == 0 || wire.ValidMetadata(m):
		return nil
	case len(m) > MaxMetadataBytes:
		return tooLong("metadata", len(m), MaxMetadataBytes)
	}
	return &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf("metadata of %d bytes is malformed: use Metadata.Append", len(m))}
}

// A request is interactive or batch. An overloaded server refuses batch first: see
// [budget.Admission]. Everything is interactive unless its client says otherwise.
//
// The priority of a request is that of RFC 9218 in the metadata, as in the header of HTTP and
// the metadata of gRPC: urgency 7, which the RFC reserves for background tasks, is batch.
// Servers that do not know it ignore it.
const (
	// PriorityKey is the key of the metadata with the priority.
	PriorityKey = "priority"
	// BatchPriority is its value for batch.
	BatchPriority = "u=7"
)

// batchKey is the context key of a bool: whether requests are batch.
type batchKey struct{}

// WithBatch returns a context whose calls and streams are batch: for background work, as
// exports, copies and measurements. A handler's calls with its context have the
// priority of its request without it.
func WithBatch(ctx context.Context) context.Context {
	return context.WithValue(ctx, batchKey{}, true)
}

// IsBatch reports whether calls with a context are batch, and in a handler whether its request
// is.
func IsBatch(ctx context.Context) bool {
	return ctx.Value(batchKey{}) == true
}

// IsBatchPriority reports whether a priority of RFC 9218 is that of batch.
func IsBatchPriority(priority string) (batch bool) {
	for member := range strings.SplitSeq(priority, ",") {
		member, _, _ = strings.Cut(member, ";") // parameters
		if key, urgency, _ := strings.Cut(strings.TrimSpace(member), "="); key == "u" {
			batch = urgency == "7"
		}
	}
	return batch
}

// isBatch reports whether a request with the metadata is batch.
func (m Metadata) isBatch() bool {
	priority, has := m.Get(PriorityKey)
	return has && IsBatchPriority(priority)
}

// withBatch returns metadata with the priority of batch. Metadata that has a priority keeps
// it; metadata without room for it is that of interactive requests.
func (m Metadata) withBatch() Metadata {
	if _, has := m.Get(PriorityKey); has {
		return m
	}
	prioritized := m[:len(m):len(m)].Append(PriorityKey, BatchPriority) // not into the caller's slice
	if len(prioritized) > MaxMetadataBytes {
		return m
	}
	return prioritized
}
