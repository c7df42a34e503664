package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/credentials"
	"docstore/docservice/server/internal/httpapi"
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

// RequestContext is the context of a request over gRPC or HTTP, with the values that listeners
// add to it: a context for each would cost an allocation, and over HTTP a copy of the request.
type RequestContext struct {
	context.Context                    //nolint:containedctx // it is one
	Reservation     budget.Reservation // for the response; without an account there is none
	Identity        boxcarrpc.Identity // of the caller
}

// Value implements context.Context.
func (c *RequestContext) Value(key any) any {
	switch key.(type) {
	case budget.ReservationKey:
		if c.Reservation.Account != nil {
			return &c.Reservation
		}
	case identityKey:
		return &c.Identity
	}
	return c.Context.Value(key)
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

// ifPermittedAll wraps a handler whose responses may name any collection. It answers 403 to a
// caller that may not use all.
func (s *Server) ifPermittedAll(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.Authorize(r.Context(), credentials.Everything); err != nil {
			httpapi.Errorf(httpapi.CodeForbidden, "%v", err).Write(w)
			return
		}
		next(w, r)
	}
}
