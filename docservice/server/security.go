package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/boxcarrpc/session"
)

// Security holds the flags of authentication and encryption.
type Security struct {
	Certificate, Key, ClientCA, TokenFile, Access string
	Operators                                     []string
	Insecure, InsecureAnonymous                   bool
}

// Check reports conflicting flags. grpc may be empty.
func (s *Security) Check(boxcar, grpc string) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	encrypted := s.Certificate != ""
	if encrypted != (s.Key != "") {
		problem("--tls-cert and --tls-key go together; give both")
	}
	if s.ClientCA != "" && !encrypted {
		problem("--tls-client-ca needs --tls-cert and --tls-key")
	}
	if len(s.Operators) > 0 && !s.RequiresCredentials() {
		problem("--operators needs --tls-client-ca or --token-file to identify them")
	}
	if s.Access != "" && !s.RequiresCredentials() {
		problem("--access needs --tls-client-ca or --token-file to identify clients")
	}
	if s.Insecure && (encrypted || s.TokenFile != "") {
		problem("--insecure contradicts --tls-cert and --token-file")
	}
	for _, listener := range [][2]string{{"--boxcar", boxcar}, {"--grpc", grpc}} {
		flag, address := listener[0], listener[1]
		switch {
		case address == "" || s.Insecure || isLoopback(address):
		case encrypted && (s.RequiresCredentials() || s.InsecureAnonymous):
		case encrypted:
			problem("%s %s would serve other hosts without authentication; give --tls-client-ca or --token-file, or --insecure-anonymous if this is intended", flag, address)
		case s.TokenFile != "":
			problem("%s %s would receive tokens in plain text; give --tls-cert and --tls-key", flag, address)
		default:
			problem("%s %s would serve other hosts in plain text; give --tls-cert and --tls-key, or --insecure if this is intended", flag, address)
		}
	}
	return errors.Join(problems...)
}

// RequiresCredentials reports whether clients must authenticate.
func (s *Security) RequiresCredentials() bool { return s.ClientCA != "" || s.TokenFile != "" }

// isLoopback reports whether an address is on loopback.
func isLoopback(address string) bool {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && tcp.IP.IsLoopback()
}

// An Authenticator checks the credentials of clients.
type Authenticator struct {
	tls       func() (*tls.Config, error) // nil: plain text
	tokens    *credentials.Tokens         // nil: none
	access    *credentials.Access         // nil: each client may use all collections
	sessions  *session.Set                // of requests and connections over gRPC and HTTP
	operators []string
	insecure  bool
	required  bool // clients must authenticate
}

// open reads the files.
func (s *Security) open(log *slog.Logger) (*Authenticator, error) {
	k := &Authenticator{insecure: s.Insecure, operators: s.Operators, required: s.RequiresCredentials()}
	var err error
	if s.TokenFile != "" {
		if k.tokens, err = credentials.OpenTokens(s.TokenFile, log); err != nil {
			return nil, err
		}
	}
	if s.Access != "" {
		if k.access, err = credentials.OpenAccess(s.Access, log); err != nil {
			return nil, err
		}
	}
	if s.Certificate != "" {
		k.tls, err = credentials.ServerTLS(credentials.Files{
			Certificate: s.Certificate, Key: s.Key, CA: s.ClientCA, CertificateOptional: s.TokenFile != "",
		}, log)
	}
	k.sessions = session.NewSet(k.tls)
	return k, err
}

// configure sets the options of the Boxcar listener.
func (k *Authenticator) configure(o *boxcarrpc.ServerOptions) {
	o.TLS, o.Insecure, o.Operators = k.tls, k.insecure, k.operators
	if k.tokens != nil {
		o.Authenticate = k.tokens.Authenticate
	}
}

// Required reports whether clients must authenticate.
func (k *Authenticator) Required() bool { return k.required }

// TLS returns the TLS configuration of a listener for these protocols, nil for plain text.
// The handshake accepts clients without a certificate, so that they can ask for the health
// and others get an error response: the listener checks each request with Identify.
func (k *Authenticator) TLS(protocols ...string) *tls.Config {
	if k.tls == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := k.tls()
			if err == nil {
				config = config.Clone()
				config.NextProtos = protocols
				if config.ClientAuth == tls.RequireAndVerifyClientCert {
					config.ClientAuth = tls.VerifyClientCertIfGiven
				}
			}
			return config, err
		},
	}
}

// Identify returns the identity of a client of gRPC or HTTP by its token, empty for none, and
// by the certificate of its TLS connection, nil for plain text. A client without credentials
// is anonymous, or an error if they are required.
func (k *Authenticator) Identify(state *tls.ConnectionState, token string) (boxcarrpc.Identity, error) {
	identity, err := boxcarrpc.IdentityOfTLS(state)
	switch {
	case k.tokens != nil:
		return k.tokens.Authenticate(&boxcarrpc.Peer{Identity: identity, TLS: state}, token)
	case err == nil && k.required && !identity.Authenticated():
		err = errNoCertificate
	}
	return identity, err
}

var errNoCertificate = errors.New("a certificate is needed")
