package boxcarrpc

import (
	"fmt"
	"iter"

	"docstore/boxcarrpc/internal/wire"
)

// MaxMetadataBytes bounds each block of metadata; header and trailer of a response
// together.
const MaxMetadataBytes = wire.MaxMetadataBytes

// Metadata is what goes with a request, a response or a stream beside its data:
// pairs of a key and a value, in the protocol's form. A key has at least one byte,
// small letters and hyphens by custom, and may come more than once. The zero
// Metadata has no pairs, and costs nothing on the wire.
//
// [MaxMetadataBytes] bound a block. What has come from a peer is well formed.
type Metadata []byte

// Append adds a pair and returns the extended block, like append.
func (m Metadata) Append(key, value string) Metadata { return wire.AppendPair(m, key, value) }

// Get returns the first value of a key; ok says whether there is one.
func (m Metadata) Get(key string) (value string, ok bool) {
	k, v, rest, ok := wire.CutPair(m)
	for ; ok; k, v, rest, ok = wire.CutPair(rest) {
		if string(k) == key {
			return string(v), true
		}
	}
	return "", false
}

// All ranges over the pairs in their order, up to what is malformed if anything is.
func (m Metadata) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		k, v, rest, ok := wire.CutPair(m)
		for ; ok && yield(string(k), string(v)); k, v, rest, ok = wire.CutPair(rest) {
		}
	}
}

// check reports whether metadata can be sent.
func (m Metadata) check() error {
	switch {
	case len(m) == 0 || wire.ValidMetadata(m):
		return nil
	case len(m) > MaxMetadataBytes:
		return tooLong("metadata", len(m), MaxMetadataBytes)
	}
	return &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf("metadata of %d bytes is not pairs", len(m))}
}
