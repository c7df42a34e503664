package main

import (
	"crypto/tls"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
)

// httpFlags say where HTTP is served and what of it. On a loopback address, which only
// this host reaches, all of it is, in plain text. On any other it speaks TLS and asks
// for a token or a certificate unless it is open, and has documents and what is for
// debugging only if that is asked for.
type httpFlags struct {
	address string
	open    bool // to whoever asks
	lookUp  bool // documents, their ids and their lists
	debug   bool // profiles, the recent log, settings
}

func (h *httpFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&h.address, "http", defaultHTTP, "address to serve HTTP on; one that other hosts reach needs --tls-cert and --token-file or --tls-client-ca, or --http-open")
	flags.BoolVar(&h.open, "http-open", false, "serve HTTP to other hosts without asking who they are, in plain text unless there is --tls-cert")
	flags.BoolVar(&h.lookUp, "http-lookup", false, "serve documents, ids and exports over HTTP to other hosts, too")
	flags.BoolVar(&h.debug, "http-debug", false, "serve profiles, the recent log and the settings over HTTP to other hosts, too")
}

// local tells whether only this host reaches the listener.
func (h *httpFlags) local() bool { return isLoopback(h.address) }

// check reports a listener that would tell other hosts what is private.
func (h *httpFlags) check(s *security) error {
	switch {
	case h.local() || h.open:
		return nil
	case s.certificate == "":
		return cli.Usagef("--http %s would serve other hosts in plain text; give --tls-cert, --tls-key and --token-file, or --http-open if that is meant", h.address)
	case !s.asksForProof():
		return cli.Usagef("--http %s would serve whoever asks; give --token-file or --tls-client-ca, or --http-open if that is meant", h.address)
	}
	return nil
}

// tls is the TLS of the listener; nil: plain text. A client without a certificate is let in
// as far as to be told that it needs one, and to ask how the daemon is.
func (h *httpFlags) tls(k *keeper) *tls.Config {
	if h.local() || k.tls == nil {
		return nil
	}
	config := k.tlsFor("h2", "http/1.1")
	next := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := next(hello)
		if err == nil && config.ClientAuth == tls.RequireAndVerifyClientCert {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
		return config, err
	}
	return config
}

// scheme is that of the listener's URLs.
func (h *httpFlags) scheme(k *keeper) string {
	if h.tls(k) != nil {
		return "https"
	}
	return "http"
}

// lookUps tells whether documents are served.
func (h *httpFlags) lookUps() bool { return h.lookUp || h.local() }

// ifLookUps is a handler of documents, if these are served.
func (h *httpFlags) ifLookUps(next http.HandlerFunc) http.HandlerFunc {
	return hiddenUnless(h.lookUps(), "--http-lookup", next)
}

// ifDebug is a handler of what is for debugging, if that is served.
func (h *httpFlags) ifDebug(next http.HandlerFunc) http.HandlerFunc {
	return hiddenUnless(h.debug || h.local(), "--http-debug", next)
}

func hiddenUnless(shown bool, flag string, next http.HandlerFunc) http.HandlerFunc {
	if shown {
		return next
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not served on an address that other hosts reach; start the daemon with "+flag+" to have it", http.StatusForbidden)
	}
}

// openPaths are what balancers ask for.
var openPaths = map[string]bool{"/healthz": true, "/readyz": true}

// guard asks for proof before the handler is reached.
func (h *httpFlags) guard(k *keeper, next http.Handler) http.Handler {
	if h.local() || h.open {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !openPaths[r.URL.Path] {
			if err := k.authenticate(r.TLS, tokenOf(r)); err != nil {
				w.Header().Set("WWW-Authenticate", `Basic realm="docserviced: any name, and the token as the password"`)
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// tokenOf is the token of a request: a bearer's, or a password, which browsers ask for.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}
