package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
)

// Files are those of TLS. An empty path means that there is none.
type Files struct {
	// Certificate and Key are one's own. A server must have them.
	Certificate, Key string
	// CA is the authorities of the other side: a server asks for certificates of
	// clients if there are any, and a client goes by the system's if there are none.
	CA string
	// CertificateOptional lets a server with a CA take clients without a certificate,
	// which prove who they are by a token. It means nothing for a client.
	CertificateOptional bool
}

// sessions is how many servers a client keeps a session of, to come back to.
const sessions = 1 << 10

// ServerTLS reads the files of a server, for ServerOptions.TLS. log may be nil; it
// is told of changes.
func ServerTLS(files Files, log *slog.Logger) (func() (*tls.Config, error), error) {
	if files.Certificate == "" || files.Key == "" {
		return nil, errors.New("credentials: a server needs a certificate and its key")
	}
	return source(files, log, func(config *tls.Config, authorities *x509.CertPool) {
		switch config.ClientCAs = authorities; {
		case authorities == nil:
		case files.CertificateOptional:
			config.ClientAuth = tls.VerifyClientCertIfGiven
		default:
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
	})
}

// ClientTLS reads the files of a client, for PoolOptions.TLS. log may be nil; it is
// told of changes.
func ClientTLS(files Files, log *slog.Logger) (func() (*tls.Config, error), error) {
	if (files.Certificate == "") != (files.Key == "") {
		return nil, errors.New("credentials: a client has a certificate and its key, or neither")
	}
	return source(files, log, func(config *tls.Config, authorities *x509.CertPool) {
		config.RootCAs = authorities
		config.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
	})
}

// source reads the files, and again when they change. finish gives a configuration
// what its side needs.
func source(files Files, log *slog.Logger, finish func(*tls.Config, *x509.CertPool)) (func() (*tls.Config, error), error) {
	f, err := newFromFiles(log, func() (*tls.Config, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS13}
		if files.Certificate != "" {
			certificate, err := readPair(files.Certificate, files.Key)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		authorities, err := readAuthorities(files.CA)
		if err != nil {
			return nil, err
		}
		finish(config, authorities)
		return config, nil
	}, files.Certificate, files.Key, files.CA)
	if err != nil {
		return nil, err
	}
	return func() (*tls.Config, error) { return f.get(), nil }, nil
}

func readPair(certificatePath, keyPath string) (pair tls.Certificate, err error) {
	certificate, err := readFile(certificatePath)
	if err != nil {
		return pair, err
	}
	key, err := readFile(keyPath)
	if err != nil {
		return pair, err
	}
	if pair, err = tls.X509KeyPair(certificate, key); err != nil {
		return pair, fmt.Errorf("%s and %s: %w", certificatePath, keyPath, err)
	}
	return pair, nil
}

// readAuthorities returns nil for no path.
func readAuthorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: no certificate in PEM in it", path)
	}
	return authorities, nil
}
