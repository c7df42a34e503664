package server

import (
	"context"
	"fmt"
	"strings"

	"docstore/boxcarrpc"
)

// identityKey is the context key of the caller of a request over gRPC or HTTP, a
// *boxcarrpc.Identity. Over Boxcar it is that of PeerOf.
type identityKey struct{}

// identityOf returns the caller of a request, anonymous if it is unknown.
func identityOf(ctx context.Context) boxcarrpc.Identity {
	if peer := boxcarrpc.PeerOf(ctx); peer != nil {
		return peer.Identity
	}
	if identity, ok := ctx.Value(identityKey{}).(*boxcarrpc.Identity); ok {
		return *identity
	}
	return boxcarrpc.Identity{}
}

// WithIdentity returns a context for the requests of a caller.
func WithIdentity(ctx context.Context, identity boxcarrpc.Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, &identity)
}

// Authorize returns an error if --access does not permit the caller of a request to use a
// collection, or a shard of it.
func (s *Server) Authorize(ctx context.Context, collection string) error {
	if s.auth.access == nil {
		return nil
	}
	identity := identityOf(ctx)
	collection, _, _ = strings.Cut(collection, "/")
	if identity.Kind == boxcarrpc.LocalIdentity || s.auth.access.Allows(identity, collection) {
		return nil
	}
	return fmt.Errorf("client %v is not permitted to use collection %q: see --access of the server", identity, collection)
}
