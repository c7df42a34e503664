package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/cmd/internal/cli"
)

// security holds the flags of authentication and encryption.
type security struct {
	certificate, key, clientCA, tokenFile, access string
	operators                                     []string
	insecure, insecureAnonymous                   bool
}

func (s *security) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.certificate, "tls-cert", "", "certificate (PEM) for TLS over Boxcar and gRPC, and over HTTP unless on loopback; reloaded when it changes")
	flags.StringVar(&s.key, "tls-key", "", "key of --tls-cert (PEM)")
	flags.StringVar(&s.clientCA, "tls-client-ca", "", "authorities (PEM) of client certificates; clients then need a certificate, or a token of --token-file")
	flags.StringVar(&s.tokenFile, "token-file", "", "file with a line NAME TOKEN for each client; reloaded when it changes")
	flags.StringVar(&s.access, "access", "", "file with a line CLIENT COLLECTION... for each client that may use collections, by name of certificate or token; * is all; reloaded when it changes; empty: each may use all")
	flags.StringSliceVar(&s.operators, "operators", nil, "clients that may drain the daemon, by name of certificate or token, comma-separated")
	flags.BoolVar(&s.insecure, "insecure", false, "serve other hosts over Boxcar and gRPC in plain text without authentication")
	flags.BoolVar(&s.insecureAnonymous, "insecure-anonymous", false, "serve other hosts over TLS without authentication")
}

// check reports conflicting flags. grpc may be empty.
func (s *security) check(boxcar, grpc string) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, cli.Usagef(format, args...)) }
	encrypted := s.certificate != ""
	if encrypted != (s.key != "") {
		problem("--tls-cert and --tls-key go together; give both")
	}
	if s.clientCA != "" && !encrypted {
		problem("--tls-client-ca needs --tls-cert and --tls-key")
	}
	if len(s.operators) > 0 && !s.requiresCredentials() {
		problem("--operators needs --tls-client-ca or --token-file to identify them")
	}
	if s.access != "" && !s.requiresCredentials() {
		problem("--access needs --tls-client-ca or --token-file to identify clients")
	}
	if s.insecure && (encrypted || s.tokenFile != "") {
		problem("--insecure contradicts --tls-cert and --token-file")
	}
	for _, listener := range [][2]string{{"--boxcar", boxcar}, {"--grpc", grpc}} {
		flag, address := listener[0], listener[1]
		switch {
		case address == "" || s.insecure || isLoopback(address):
		case encrypted && (s.requiresCredentials() || s.insecureAnonymous):
		case encrypted:
			problem("%s %s would serve other hosts without authentication; give --tls-client-ca or --token-file, or --insecure-anonymous if this is intended", flag, address)
		case s.tokenFile != "":
			problem("%s %s would receive tokens in plain text; give --tls-cert and --tls-key", flag, address)
		default:
			problem("%s %s would serve other hosts in plain text; give --tls-cert and --tls-key, or --insecure if this is intended", flag, address)
		}
	}
	return errors.Join(problems...)
}

// requiresCredentials reports whether clients must authenticate.
func (s *security) requiresCredentials() bool { return s.clientCA != "" || s.tokenFile != "" }

// isLoopback reports whether an address is on loopback.
func isLoopback(address string) bool {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && tcp.IP.IsLoopback()
}

// An authenticator checks the credentials of clients.
type authenticator struct {
	tls       func() (*tls.Config, error) // nil: plain text
	tokens    *credentials.Tokens         // nil: none
	access    *credentials.Access         // nil: each client may use all collections
	operators []string
	insecure  bool
}

// open reads the files.
func (s *security) open(log *slog.Logger) (*authenticator, error) {
	k := &authenticator{insecure: s.insecure, operators: s.operators}
	var err error
	if s.tokenFile != "" {
		if k.tokens, err = credentials.OpenTokens(s.tokenFile, log); err != nil {
			return nil, err
		}
	}
	if s.access != "" {
		if k.access, err = credentials.OpenAccess(s.access, log); err != nil {
			return nil, err
		}
	}
	if s.certificate != "" {
		k.tls, err = credentials.ServerTLS(credentials.Files{
			Certificate: s.certificate, Key: s.key, CA: s.clientCA, CertificateOptional: s.tokenFile != "",
		}, log)
	}
	return k, err
}

// auditDrain records that a client drained or undrained the daemon, or was refused.
func (d *daemon) auditDrain(client *boxcarrpc.Peer, method string, refused error) {
	err := d.options.audit.Record(d.env, strings.ToLower(path.Base(method)), cmp.Or(client.Identity, "anonymous"), refused,
		slog.String("address", client.Address.String()), slog.String("client", client.Name))
	if err != nil {
		d.env.Log.Error("audit", "error", err)
	}
}

// configure sets the options of the Boxcar listener.
func (k *authenticator) configure(o *boxcarrpc.ServerOptions) {
	o.TLS, o.Insecure, o.Operators = k.tls, k.insecure, k.operators
	if k.tokens != nil {
		o.Authenticate = k.tokens.Authenticate
	}
}

// tlsFor returns the TLS configuration of a listener for these protocols.
func (k *authenticator) tlsFor(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := k.tls()
			if err == nil {
				config = config.Clone()
				config.NextProtos = protocols
			}
			return config, err
		},
	}
}

// grpcOptions returns the options of the gRPC listener.
func (k *authenticator) grpcOptions() []grpc.ServerOption {
	var options []grpc.ServerOption
	if k.tls != nil {
		options = append(options, grpc.Creds(grpccredentials.NewTLS(k.tlsFor("h2"))))
	}
	return options
}

// identify returns the client of a gRPC call, by "authorization: Bearer TOKEN" or by its
// certificate, or an error if it is not allowed.
func (k *authenticator) identify(ctx context.Context) (*boxcarrpc.Peer, error) {
	client := &boxcarrpc.Peer{Address: new(net.TCPAddr)}
	if p, ok := peer.FromContext(ctx); ok {
		client.Address = p.Addr
		if info, ok := p.AuthInfo.(grpccredentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			client.Identity = boxcarrpc.CertificateName(info.State.VerifiedChains[0][0])
		}
	}
	if k.tokens == nil {
		return client, nil
	}
	token := ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		token = strings.TrimPrefix(values[0], "Bearer ")
	}
	var err error
	if client.Identity, err = k.tokens.Authenticate(client, token); err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return client, nil
}

// authenticate checks the certificate of a client, and its token if there is one, and
// returns the client's identity. state is nil for plain text.
func (k *authenticator) authenticate(state *tls.ConnectionState, token string) (identity string, err error) {
	var client boxcarrpc.Peer
	if state != nil && len(state.VerifiedChains) > 0 {
		client.Identity = boxcarrpc.CertificateName(state.VerifiedChains[0][0])
	}
	if k.tokens != nil {
		return k.tokens.Authenticate(&client, token)
	}
	if client.Identity == "" {
		return "", errNoCertificate
	}
	return client.Identity, nil
}

var errNoCertificate = errors.New("a certificate is needed")
