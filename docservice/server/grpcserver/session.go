package grpcserver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/session"
)

// ageGrace is the time for calls in progress on a connection that has reached its
// maximum age. Streams of the health that are still open then end with UNAVAILABLE.
const ageGrace = time.Minute

// A sessionStream is a stream of a client with a token. It ends when the token is revoked.
type sessionStream struct {
	grpc.ServerStream
	ctx     context.Context
	session *session.Session
}

// whileValid calls handler with a stream that ends when the client of ctx is no longer
// identity.
func (g *Protocol) whileValid(service any, stream grpc.ServerStream, identity boxcarrpc.Identity, handler grpc.StreamHandler) error {
	ctx, s, end := g.Authenticator().WhileValid(stream.Context(), func() error {
		now, err := g.identify(stream.Context())
		if err == nil && now != identity {
			err = status.Errorf(codes.Unauthenticated, "the token is that of %v now", now)
		}
		return err
	})
	defer end()
	valid := &sessionStream{stream, ctx, s}
	err := handler(service, valid)
	if refused := valid.verify(); refused != nil {
		return refused
	}
	return err
}

// verify returns the status of a stream whose token was revoked: clients connect again.
func (s *sessionStream) verify() error {
	if err := s.session.Verify(time.Now()); err != nil {
		return status.Errorf(codes.Unavailable, "the client is no longer authenticated: %s", status.Convert(err).Message())
	}
	return nil
}

// Context implements grpc.ServerStream.
func (s *sessionStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *sessionStream) SendMsg(message any) error {
	if err := s.verify(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(message)
}
