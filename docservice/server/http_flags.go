package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/credentials"
	"docstore/docservice/server/internal/bounded"
	"docstore/docservice/server/internal/httpapi"
)

// HTTP configure the HTTP listener. On a loopback address it serves everything in
// plain text. On other addresses it requires TLS and credentials unless Open is set, and
// serves documents and debugging endpoints only on request.
type HTTP struct {
	Address string
	Open    bool // without authentication
	LookUp  bool // serve documents, ids and lists
	Debug   bool // serve profiles, the recent log and settings
	// Hosts are further names under which HTTP is served: see onlyOwnHosts.
	Hosts []string
	// Origins are those of web pages that may read documents and lists: see shared.
	Origins []string
}

// local reports whether the listener is on loopback.
func (h *HTTP) local() bool { return isLoopback(h.Address) }

// Check refuses a configuration that exposes private data to other hosts.
func (h *HTTP) Check(s *Security) error {
	if err := cmp.Or(h.checkHosts(), h.checkOrigins()); err != nil {
		return err
	}
	switch {
	case h.local() || h.Open:
		return nil
	case s.Certificate == "":
		return fmt.Errorf("--http %s would serve other hosts in plain text; give --tls-cert, --tls-key and --token-file, or --http-open if this is intended", h.Address)
	case !s.RequiresCredentials():
		return fmt.Errorf("--http %s would serve clients without authentication; give --token-file or --tls-client-ca, or --http-open if this is intended", h.Address)
	}
	return nil
}

// tls returns the TLS configuration, nil for plain text.
func (h *HTTP) tls(k *Authenticator) *tls.Config {
	if h.local() {
		return nil
	}
	return k.TLS("h2", "http/1.1")
}

// scheme returns the scheme of the listener's URLs.
func (h *HTTP) scheme(k *Authenticator) string {
	if h.tls(k) != nil {
		return "https"
	}
	return "http"
}

// lookUps reports whether documents are served.
func (h *HTTP) lookUps() bool { return h.LookUp || h.local() }

// ifLookUps wraps a handler of documents; it answers 403 if they are not served.
func (h *HTTP) ifLookUps(next http.HandlerFunc) http.HandlerFunc {
	return hiddenUnless(h.lookUps(), "--http-lookup", next)
}

// debugs reports whether the log, settings and profiles are served.
func (h *HTTP) debugs() bool { return h.Debug || h.local() }

// ifDebug wraps a handler for debugging; it answers 403 if that is not served.
func (h *HTTP) ifDebug(next http.HandlerFunc) http.HandlerFunc {
	return hiddenUnless(h.debugs(), "--http-debug", next)
}

func hiddenUnless(shown bool, flag string, next http.HandlerFunc) http.HandlerFunc {
	if shown {
		return next
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		httpapi.Errorf(httpapi.CodeForbidden, "not served to other hosts; start the daemon with %s to enable it", flag).Write(w)
	}
}

// publicPaths are served without authentication, for load balancers.
var publicPaths = map[string]bool{"/healthz": true, "/readyz": true}

// requiresCredentials reports whether requests need credentials, except for publicPaths.
func (h *HTTP) requiresCredentials() bool { return !h.local() && !h.Open }

// guard requires credentials before the handler runs, and counts the connections of clients.
func (h *HTTP) guard(k *Authenticator, next http.Handler) http.Handler {
	if !h.requiresCredentials() {
		var identity boxcarrpc.Identity
		if h.local() {
			identity.Kind = boxcarrpc.LocalIdentity
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if publicPaths[r.URL.Path] || countConn(w, r, identity) {
				next.ServeHTTP(w, withIdentity(r, identity))
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !publicPaths[r.URL.Path] {
			identity, err := k.Identify(r.TLS, tokenOf(r))
			if err == nil {
				err = k.VerifyConn(r.Context(), r.TLS)
			}
			if err != nil {
				w.Header().Set("WWW-Authenticate", `Basic realm="docserviced: any name, and the token as the password"`)
				httpapi.Errorf(httpapi.CodeUnauthenticated, "%v", err).Write(w)
				return
			}
			if countConn(w, r, identity) {
				k.authenticated(w, r, identity, next)
			}
			return
		}
		next.ServeHTTP(w, r)
	})
}

// countConn counts the connection of a request as one of its client. If the client has too
// many, it answers 429 and returns false.
func countConn(w http.ResponseWriter, r *http.Request, identity boxcarrpc.Identity) bool {
	c := bounded.ConnOf(r.Context())
	if c == nil {
		return true // in a test, without a connection
	}
	err := c.Authenticate(identity.Name)
	if err != nil {
		httpapi.Errorf(httpapi.CodeResourceExhausted, "%v", err).Write(w)
	}
	return err == nil
}

// clientOf returns the client of a request.
func clientOf(r *http.Request) budget.Client {
	identity := identityOf(r.Context())
	if c := bounded.ConnOf(r.Context()); c != nil {
		return c.Client(identity.Name)
	}
	peer := &boxcarrpc.Peer{Address: new(net.TCPAddr), Identity: identity} // in a test, without a connection
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		peer.Address = net.TCPAddrFromAddrPort(address)
	}
	return peer.Client()
}

// admitHTTP applies the limits of requests, which HTTP shares with the other listeners. A
// request is batch by its Priority, or by its context.
func (s *Server) admitHTTP(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		batch := boxcarrpc.IsBatch(r.Context())
		if values := r.Header["Priority"]; !batch && len(values) > 0 && boxcarrpc.IsBatchPriority(strings.Join(values, ",")) {
			batch, r = true, r.WithContext(boxcarrpc.WithBatch(r.Context()))
		}
		leave, err := s.boxcar.Admit(clientOf(r), batch)
		var refused *boxcarrpc.Error
		if errors.As(err, &refused) {
			httpapi.Errorf(httpapi.CodeResourceExhausted, "%s", refused.Message).Write(w)
			return
		}
		defer leave()
		next(w, r)
	}
}

// batchByDefault makes requests without a Priority batch.
func batchByDefault(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Priority") == "" {
			r = r.WithContext(boxcarrpc.WithBatch(r.Context()))
		}
		next(w, r)
	}
}

// tokenOf returns the token of a request: a bearer token, or the password of basic
// authentication, for browsers.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	return credentials.BearerToken(r.Header.Get("Authorization"))
}
