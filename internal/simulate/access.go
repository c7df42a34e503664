package simulate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/session"
	"docstore/docservice"
	"docstore/docservice/server"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
)

// Tokens of clients of servers of documents.
const (
	clientToken  = "token-of-clients" //nolint:gosec // of a simulation
	serverToken  = "token-of-servers" //nolint:gosec // of a simulation
	revokedToken = "token-to-be-revoked"
	unknownToken = "token-of-nobody"
)

// access is how servers of documents identify their clients if Config.Secure: TLS, and tokens in a
// file. In the middle of the run one token is revoked. The files are real: package credentials reads
// them from the operating system.
type access struct {
	w       *world
	dir     string      // of the files
	config  *tls.Config // of clients
	revoked time.Time   // when revokedToken is removed
}

func newAccess(w *world) (*access, error) {
	c, err := newCredentials()
	if err != nil {
		return nil, err
	}
	a := &access{w: w, revoked: w.start.Add(w.config.Work / 2)}
	a.config = &tls.Config{MinVersion: tls.VersionTLS13, CurvePreferences: curves, RootCAs: c.kept}
	if a.dir, err = os.MkdirTemp("", "simulate-"); err != nil {
		return nil, err
	}
	certificate := c.of[serverName]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return nil, err
	}
	return a, errors.Join(
		a.write("key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))),
		a.write("certificate", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))),
		a.allow(clientToken, serverToken, revokedToken))
}

// allow writes the file of tokens.
func (a *access) allow(tokens ...string) error {
	var lines strings.Builder
	for _, token := range tokens {
		fmt.Fprintf(&lines, "%s %s\n", token[len("token-"):], token)
	}
	return a.write("tokens", lines.String())
}

func (a *access) path(name string) string { return filepath.Join(a.dir, name) }

// write replaces a file.
func (a *access) write(name, content string) error {
	if err := os.WriteFile(a.path("new"), []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(a.path("new"), a.path(name))
}

// close removes the files.
func (a *access) close() error {
	if a == nil {
		return nil
	}
	return os.RemoveAll(a.dir)
}

// security returns the flags of a server.
func (a *access) security() server.Security {
	if a == nil {
		return server.Security{Insecure: true, InsecureAnonymous: true}
	}
	return server.Security{Certificate: a.path("certificate"), Key: a.path("key"), TokenFile: a.path("tokens")}
}

// pool sets the options of a pool of servers for a token.
func (a *access) pool(o boxcarrpc.PoolOptions, token string) boxcarrpc.PoolOptions {
	if o.Insecure = a == nil; a != nil {
		o.TLS, o.Token = func() (*tls.Config, error) { return a.config, nil }, func() (string, error) { return token, nil }
	}
	return o
}

// grpc returns the options of a connection over gRPC for a token.
func (a *access) grpc(token string) []grpc.DialOption {
	if a == nil {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(grpccredentials.NewTLS(a.config.Clone())), grpc.WithPerRPCCredentials(bearer(token))}
}

// bearer is a token for each request over gRPC, empty for none.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b == "" {
		return map[string]string{}, nil
	}
	return map[string]string{"authorization": b.header()}, nil
}

func (b bearer) RequireTransportSecurity() bool { return true }

// header returns the value of the header. The scheme is in lower case, as some libraries write it.
func (b bearer) header() string { return "bearer " + string(b) }

// scheme returns the scheme of URLs.
func (a *access) scheme() string {
	if a == nil {
		return "http://"
	}
	return "https://"
}

// authorize adds a token to a request over HTTP, empty for none.
func (a *access) authorize(r *http.Request, token string) {
	if a != nil && token != "" {
		r.Header.Set("Authorization", bearer(token).header())
	}
}

// clientTLS returns the configuration of clients, nil for plain text.
func (a *access) clientTLS() *tls.Config {
	if a == nil {
		return nil
	}
	return a.config.Clone()
}

// isRefused reports whether the server did not accept the credentials.
func isRefused(err error) bool {
	var response statusError
	return boxcarrpc.CodeOf(err) == boxcarrpc.CodeUnauthenticated || status.Code(err) == codes.Unauthenticated ||
		errors.As(err, &response) && response == http.StatusUnauthorized
}

// run revokes a token, and asks servers with wrong tokens until ctx ends.
func (a *access) run(ctx context.Context) {
	a.w.asking.Go(func() { a.intrude(ctx) })
	for _, h := range a.w.servers {
		a.w.asking.Go(func() { a.askRevoked(ctx, h) })
	}
	if ctxtime.Sleep(ctx, time.Until(a.revoked)) {
		a.w.must(a.allow(clientToken, serverToken))
	}
}

// intrude asks on new connections, without a token, or with one that is not valid.
func (a *access) intrude(ctx context.Context) {
	for d := a.w.chance.Next("intrude"); ctxtime.Sleep(ctx, d.Duration(0, 20*time.Second)); {
		s := a.stranger(a.w.servers[d.Int(len(a.w.servers))], []string{"", unknownToken}[d.Int(2)])
		if protocol, err := s.ask(&d); err == nil {
			a.w.account.wrongf("access", "%s serves a client with the token %q over %s", s.single.name, s.token, protocol)
		}
		s.close()
	}
}

// askRevoked asks a server on the same connections before and after the token is revoked.
func (a *access) askRevoked(ctx context.Context, h *serverHost) {
	s := a.stranger(h, revokedToken)
	defer s.close()
	for d := a.w.chance.Next("ask revoked"); ctxtime.Sleep(ctx, d.Duration(0, 10*time.Second)); {
		began := time.Now()
		protocol, err := s.ask(&d)
		switch late := began.Sub(a.revoked); {
		case err == nil && late > session.Interval+revocationSlack:
			a.w.account.wrongf("access", "%s serves a client over %s %v after its token was revoked", h.name, protocol, late)
		case isRefused(err) && time.Now().Before(a.revoked):
			a.w.account.wrongf("access", "%s refuses a client over %s whose token will be revoked: %v", h.name, protocol, err)
		}
	}
}

// stranger is a client of one server with a token that may not be valid, by each protocol.
type stranger struct {
	*adapterClient
	boxcar *boxcarrpc.Pool
}

func (a *access) stranger(h *serverHost, token string) *stranger {
	c, err := a.w.newAdapterClient(h, token)
	a.w.must(err)
	options := a.pool(boxcarrpc.PoolOptions{Size: 1, Dialer: dialerOf(a.w.clients), Name: "stranger", Seed: a.w.config.Seed}, token)
	pool, err := boxcarrpc.NewPool(discovery.Static(h.boxcar()), &options)
	a.w.must(err)
	return &stranger{c, pool}
}

func (s *stranger) close() { s.w.must(errors.Join(s.adapterClient.close(), s.boxcar.Close())) }

// ask asks for a document. Without an error the server has answered.
func (s *stranger) ask(d *chance.Draw) (protocol string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	id := s.randomID(d)
	switch d.Int(3) {
	case 0:
		protocol = "Boxcar"
		_, err = docservice.NewClient(s.boxcar, collectionName).Get(ctx, nil, id)
	case 1:
		protocol = "gRPC"
		_, err = s.get(ctx, id)
	default:
		protocol = "HTTP"
		var response *http.Response
		if response, err = s.send(ctx, http.MethodGet, "/documents/"+collectionName+"/"+id, nil, ""); err == nil {
			if err = response.Body.Close(); response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
				err = statusError(response.StatusCode)
			}
		}
	}
	if errors.Is(err, docservice.ErrNotFound) {
		err = nil
	}
	return protocol, err
}
