package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/session"
	"docstore/docservice/server/internal/bounded"
)

var errIdentityChanged = errors.New("the token is that of another client now")

// VerifyConn returns an error if the certificate of the client of a request over gRPC or
// HTTP is no longer valid. Its connection is then closed, also while no request is in
// progress.
func (k *Authenticator) VerifyConn(ctx context.Context, state *tls.ConnectionState) error {
	conn := bounded.ConnOf(ctx)
	if conn == nil || state == nil {
		return nil
	}
	return conn.Verify(k.sessions, state)
}

// WhileValid returns a context that ends when check, which authenticates a request by its
// token, fails while the request is in progress. The session tells whether it did. The
// caller must call end.
func (k *Authenticator) WhileValid(ctx context.Context, check func() error) (_ context.Context, s *session.Session, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s = k.sessions.Add(session.Credential{Check: check}, cancel)
	return ctx, s, func() {
		s.Close()
		cancel(nil)
	}
}

// authenticated serves a request for as long as its token is valid. identity is that of the
// token, or of the certificate, which belongs to the connection.
func (k *Authenticator) authenticated(w http.ResponseWriter, r *http.Request, identity boxcarrpc.Identity, next http.Handler) {
	r = withIdentity(r, identity)
	if token := tokenOf(r); token != "" && k.tokens != nil {
		ctx, _, end := k.WhileValid(r.Context(), func() error {
			now, err := k.Identify(r.TLS, token)
			if err == nil && now != identity {
				err = errIdentityChanged
			}
			return err
		})
		defer end()
		r = r.WithContext(ctx)
	}
	next.ServeHTTP(w, r)
}

// endlessPaths are responses that have no end. Their clients ask again.
var endlessPaths = map[string]bool{"/live": true, "/fleet/live": true}

// aging asks the client of a connection that has reached its maximum age to connect again,
// so that clients behind one address use new servers. Requests in progress are finished,
// except those of endlessPaths.
func aging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := bounded.ConnOf(r.Context())
		if c == nil || c.Retirement().IsZero() {
			next.ServeHTTP(w, r)
			return
		}
		if time.Now().After(c.Retirement()) {
			w.Header().Set("Connection", "close") // over HTTP/2 net/http sends GOAWAY
		}
		if endlessPaths[r.URL.Path] {
			ctx, cancel := context.WithDeadline(r.Context(), c.Retirement())
			defer cancel()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
