package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
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
	"docstore/internal/cli"
)

// security is the flags that say who may come in, and how.
type security struct {
	certificate, key, clientCA, tokenFile string
	operators                             []string
	insecure                              bool
}

func (s *security) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.certificate, "tls-cert", "", "certificate (PEM) for TLS on the Boxcar and gRPC doors; read again when it changes")
	flags.StringVar(&s.key, "tls-key", "", "key of the certificate (PEM)")
	flags.StringVar(&s.clientCA, "tls-client-ca", "", "authorities (PEM) of clients, which need a certificate then, or else a token if there is --token-file")
	flags.StringVar(&s.tokenFile, "token-file", "", "file with a line NAME TOKEN for each client that is let in by a token; read again when it changes")
	flags.StringSliceVar(&s.operators, "operators", nil, "who may drain the daemon from other hosts, as certificates or tokens name them, with commas between")
	flags.BoolVar(&s.insecure, "insecure", false, "serve plain text to other hosts, to whoever asks")
}

// check reports flags that do not go together. grpc may be empty.
func (s *security) check(boxcar, grpc string) error {
	switch encrypted := s.certificate != ""; {
	case encrypted != (s.key != ""):
		return cli.Usagef("--tls-cert and --tls-key go together")
	case s.clientCA != "" && !encrypted:
		return cli.Usagef("--tls-client-ca needs --tls-cert and --tls-key")
	case len(s.operators) > 0 && s.clientCA == "" && s.tokenFile == "":
		return cli.Usagef("--operators needs --tls-client-ca or --token-file, by which they prove who they are")
	case s.insecure && (encrypted || s.tokenFile != ""):
		return cli.Usagef("--insecure contradicts --tls-cert and --token-file")
	case s.insecure || encrypted:
		return nil
	}
	flag, address := "--boxcar", boxcar
	if isLoopback(boxcar) {
		flag, address = "--grpc", grpc
	}
	switch {
	case address == "" || isLoopback(address):
		return nil
	case s.tokenFile != "":
		return cli.Usagef("%s %s: tokens would come in plain text; give --tls-cert and --tls-key", flag, address)
	}
	return cli.Usagef("%s %s would serve other hosts in plain text; give --tls-cert and --tls-key, or --insecure if that is meant", flag, address)
}

// isLoopback reports whether only this host reaches an address.
func isLoopback(address string) bool {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && tcp.IP.IsLoopback()
}

// A keeper lets clients in.
type keeper struct {
	tls       func() (*tls.Config, error) // nil: plain text
	tokens    *credentials.Tokens         // nil: none
	operators []string
	insecure  bool
	closed    bool // clients must prove who they are
}

// open reads the files.
func (s *security) open(log *slog.Logger) (*keeper, error) {
	k := &keeper{insecure: s.insecure, operators: s.operators, closed: s.clientCA != "" || s.tokenFile != ""}
	var err error
	if s.tokenFile != "" {
		if k.tokens, err = credentials.OpenTokens(s.tokenFile, log); err != nil {
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

// keep applies to the Boxcar door.
func (k *keeper) keep(o *boxcarrpc.ServerOptions) {
	o.TLS, o.Insecure, o.Operators = k.tls, k.insecure, k.operators
	if k.tokens != nil {
		o.Authenticate = k.tokens.Authenticate
	}
}

// grpcOptions apply to the gRPC door.
func (k *keeper) grpcOptions() []grpc.ServerOption {
	var options []grpc.ServerOption
	if k.tls != nil {
		options = append(options, grpc.Creds(grpccredentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				config, err := k.tls()
				if err == nil {
					config = config.Clone()
					config.NextProtos = []string{"h2"}
				}
				return config, err
			},
		})))
	}
	return options
}

// identify finds out who makes a call over gRPC, by "authorization: Bearer TOKEN" or by
// the client's certificate, and whether it may.
func (k *keeper) identify(ctx context.Context) (*boxcarrpc.Peer, error) {
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

// openPaths are what HTTP tells other hosts although clients must prove who they
// are: HTTP asks for no proof.
var openPaths = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true}

// http applies to the HTTP door.
func (k *keeper) http(next http.Handler) http.Handler {
	if !k.closed {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if !openPaths[r.URL.Path] && (err != nil || !from.Addr().Unmap().IsLoopback()) {
			http.Error(w, "for this host only: the server wants proof of who asks, and HTTP has none", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
