// Package httpclient reads the HTTP endpoints of daemons for the commands that inspect them. An address is
// HOST:PORT or http://HOST:PORT for plain text, https://HOST:PORT for TLS.
package httpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc/credentials"
	"docstore/cmd/internal/cli"
)

// MaxAnswerBytes limits the size of a response.
const MaxAnswerBytes = 64 << 20

// Flags are the flags for access to daemons.
type Flags struct {
	CA, Certificate, Key, TokenFile string
}

// Add adds the flags to those of a command.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.CA, "tls-ca", "", "authorities (PEM) of the daemon's certificate; empty: those of the system")
	flags.StringVar(&f.Certificate, "tls-cert", "", "client certificate (PEM)")
	flags.StringVar(&f.Key, "tls-key", "", "key of --tls-cert (PEM)")
	flags.StringVar(&f.TokenFile, "token-file", "", "file with the token for the daemon")
}

// Check reports all conflicts of the flags with each other and with the addresses.
func (f *Flags) Check(addresses ...string) error {
	var problems []error
	for _, address := range addresses {
		if !encrypted(address) && *f != (Flags{}) {
			problems = append(problems, cli.Usagef("--http %s is plain text, over which no token or certificate is sent; write https://HOST:PORT", address))
		}
	}
	if (f.Certificate == "") != (f.Key == "") {
		problems = append(problems, cli.Usagef("--tls-cert and --tls-key go together; give both"))
	}
	return errors.Join(problems...)
}

func encrypted(address string) bool { return strings.HasPrefix(address, "https://") }

// URL returns the base URL for an address.
func URL(address string) string {
	if address = strings.TrimSuffix(address, "/"); strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// A Client reads from daemons. It is safe for concurrent use.
type Client struct {
	http  *http.Client
	token func() (string, error) // nil: none
}

// Open reads the files of the flags. timeout applies to each request.
func (f *Flags) Open(timeout time.Duration, logger *slog.Logger) (*Client, error) {
	transport := &http.Transport{}
	c := &Client{http: &http.Client{Transport: transport, Timeout: timeout}}
	if *f == (Flags{}) {
		return c, nil // over TLS, with the system's authorities
	}
	configure, err := credentials.ClientTLS(credentials.Files{CA: f.CA, Certificate: f.Certificate, Key: f.Key}, logger)
	if err != nil {
		return nil, err
	}
	if transport.TLSClientConfig, err = configure(); err != nil {
		return nil, err
	}
	if f.TokenFile != "" {
		c.token, err = credentials.Token(f.TokenFile, logger)
	}
	return c, err
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get returns the content of a path of the daemon at an address. Status 503 is not an
// error: a daemon that is not ready answers with the reason.
func (c *Client) Get(ctx context.Context, address, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, URL(address)+path, nil)
	if err != nil {
		return nil, err
	}
	if c.token != nil {
		token, err := c.token()
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswerBytes))
	if err == nil && response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		err = fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(content))
	}
	return content, err
}
