package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
)

// Files are the paths of TLS files in PEM. An empty path means no file.
type Files struct {
	// Certificate and Key identify this side. A server must have them.
	Certificate, Key string
	// CA has the authorities that sign certificates of the other side. A server with
	// a CA requires client certificates. A client without one uses the system's
	// authorities.
	CA string
	// CertificateOptional lets a server with a CA accept clients without a certificate,
	// which authenticate by a token. It has no effect on a client.
	CertificateOptional bool
}

// sessions is the size of a client's TLS session cache, in servers.
const sessions = 1 << 10

// ServerTLS reads the files of a server and returns a function for ServerOptions.TLS.
// Changes and failures are logged to log, which may be nil.
func ServerTLS(files Files, log *slog.Logger) (func() (*tls.Config, error), error) {
	if files.Certificate == "" || files.Key == "" {
		return nil, errors.New("credentials: a server requires a certificate and its key")
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

// ClientTLS reads the files of a client and returns a function for PoolOptions.TLS.
// Changes and failures are logged to log, which may be nil.
func ClientTLS(files Files, log *slog.Logger) (func() (*tls.Config, error), error) {
	if (files.Certificate == "") != (files.Key == "") {
		return nil, errors.New("credentials: certificate without key, or key without certificate: set both or neither")
	}
	return source(files, log, func(config *tls.Config, authorities *x509.CertPool) {
		config.RootCAs = authorities
		config.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
	})
}

// source returns a function that returns the configuration of the current files. finish
// sets the fields of a server or a client.
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

// readAuthorities returns nil for an empty path.
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
		return nil, fmt.Errorf("%s: no PEM certificate found", path)
	}
	return authorities, nil
}
