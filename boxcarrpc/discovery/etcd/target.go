package etcd

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"docstore/boxcarrpc/credentials"
)

// maxPasswordBytes is the maximum size of a password file.
const maxPasswordBytes = 4 << 10

// syntax is the syntax of a target for error messages.
const syntax = "want etcd://HOST:PORT[,HOST:PORT...]/PREFIX[?OPTION&...] with tls=true, ca=FILE, cert=FILE, key=FILE, user=NAME, password-file=FILE"

// A target is a parsed target of Open.
type target struct {
	endpoints    []string
	prefix       string // without a trailing slash
	tls          bool
	files        credentials.Files
	user         string
	passwordFile string
}

// parse parses a target. It does not read the files.
func parse(text string) (t target, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return t, fmt.Errorf("etcd: %w", err)
	}
	if u.Scheme != "etcd" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return t, fmt.Errorf("etcd: %s: %s", u.Redacted(), syntax)
	}
	t.endpoints, t.prefix = strings.Split(u.Host, ","), strings.Trim(u.Path, "/")
	if t.prefix == "" {
		return t, fmt.Errorf("etcd: %s: no key prefix; use, for example, etcd://%s/search", text, u.Host)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return t, fmt.Errorf("etcd: %s: %w", text, err)
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "tls":
			if t.tls = value == "true"; !t.tls {
				return t, fmt.Errorf("etcd: %s: tls=%s: must be true", text, value)
			}
		case "ca":
			t.files.CA = value
		case "cert":
			t.files.Certificate = value
		case "key":
			t.files.Key = value
		case "user":
			t.user = value
		case "password-file":
			t.passwordFile = value
		default:
			return t, fmt.Errorf("etcd: %s: unknown option %q: %s", text, name, syntax)
		}
		if value == "" {
			return t, fmt.Errorf("etcd: %s: %s is empty", text, name)
		}
	}
	t.tls = t.tls || t.files != credentials.Files{}
	if (t.user == "") != (t.passwordFile == "") {
		return t, fmt.Errorf("etcd: %s: set both user and password-file, or neither", text)
	}
	return t, nil
}

// apply reads the files and overrides the options.
func (t target) apply(o *Options) (err error) {
	if t.tls {
		if o.TLS, err = readTLS(t.files, o.Logger); err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
	}
	if t.user != "" {
		o.User = t.user
		o.Password, err = readPassword(t.passwordFile)
	}
	return err
}

// readTLS returns a configuration whose client certificate is read again when its file
// changes. The authorities are read once.
func readTLS(files credentials.Files, log *slog.Logger) (*tls.Config, error) {
	current, err := credentials.ClientTLS(files, log)
	if err != nil {
		return nil, err
	}
	first, err := current()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: first.MinVersion, RootCAs: first.RootCAs}
	if files.Certificate != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			now, err := current()
			if err != nil {
				return nil, err
			}
			return &now.Certificates[0], nil
		}
	}
	return config, nil
}

func readPassword(path string) (string, error) {
	content, err := os.ReadFile(path)
	password := strings.TrimSpace(string(content))
	if err == nil && (password == "" || len(content) > maxPasswordBytes) {
		err = fmt.Errorf("%s: want a password of 1 to %d bytes", path, maxPasswordBytes)
	}
	if err != nil {
		return "", fmt.Errorf("etcd: %w", err)
	}
	return password, nil
}

// Check returns an error if a target or one of its files is invalid.
func Check(text string) error {
	t, err := parse(text)
	if err != nil {
		return err
	}
	return t.apply(&Options{})
}
