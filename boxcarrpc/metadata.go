package boxcarrpc

import (
	"fmt"
	"iter"

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
