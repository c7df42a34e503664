package bucket

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"docstore/internal/vfs"

	"github.com/cockroachdb/errors"
)

// Options configure a Client. The zero value is ready to use.
type Options struct {
	// Endpoint is the URL of an S3-compatible store. The default is AWS_ENDPOINT_URL_S3
	// if it is set, else AWS.
	Endpoint string
	// PathStyle puts the bucket's name into the path instead of the host name, as most
	// stores other than AWS need.
	PathStyle bool
	// ForeignNames makes Get, Head and List of an S3 bucket accept names of any form, to read
	// the objects of other programs.
	ForeignNames bool

	// Timeout bounds an operation with all its attempts; a Get whose reader makes
	// progress is not bounded. The default is 2 minutes.
	Timeout time.Duration
	// StallTimeout is the maximum time without progress of a transfer. The default is
	// 15 seconds.
	StallTimeout time.Duration
	// MaxRequests bounds the requests in flight. The default is 32.
	MaxRequests int
	// MaxBytes bounds the bytes of objects in flight; a larger object is transferred
	// alone. The default is 64 MiB.
	MaxBytes int64
	// Observe gets the outcome of each attempt: nil if the store has answered, or why the
	// attempt failed for a temporary reason. The default is none.
	Observe func(error)
}

func (o *Options) setDefaults() error {
	if o.Timeout < 0 || o.StallTimeout < 0 || o.MaxRequests < 0 || o.MaxBytes < 0 {
		return errors.New("bucket: options: Timeout, StallTimeout, MaxRequests and MaxBytes must not be negative")
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = 15 * time.Second
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 32
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	if o.Observe == nil {
		o.Observe = func(error) {}
	}
	return nil
}

// Open opens the bucket at a URL: s3://BUCKET[/PREFIX] or file:///DIRECTORY. It sends no
// request: a missing bucket or wrong credentials are reported by the first operation. A
// directory is created if its parent exists.
func Open(ctx context.Context, rawURL string, options Options) (*Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, invalidURL("invalid URL %q: want s3://BUCKET/PREFIX or file:///DIRECTORY", rawURL)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, invalidURL("invalid URL %q: it must not have a user, a query or a fragment", u.Redacted())
	}
	switch u.Scheme {
	case "s3":
		return openS3(ctx, u, options)
	case "file":
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return nil, invalidURL("invalid URL %q: a directory has three slashes and an absolute path: file:///DIRECTORY", rawURL)
		}
		dir, err := OpenDir(vfs.OS, filepath.FromSlash(u.Path))
		if err != nil {
			return nil, err
		}
		return NewClient(dir, options)
	}
	return nil, invalidURL("URL %q has scheme %q: want s3://BUCKET/PREFIX or file:///DIRECTORY", rawURL, u.Scheme)
}

func openS3(ctx context.Context, u *url.URL, options Options) (*Client, error) {
	if e := options.Endpoint; e != "" {
		if parsed, err := url.Parse(e); err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
			return nil, invalidURL("endpoint %q: want http://HOST:PORT or https://HOST:PORT", e)
		}
	}
	prefix := strings.Trim(u.Path, "/")
	if u.Host == "" {
		return nil, invalidURL("URL %q names no bucket: want s3://BUCKET/PREFIX", u)
	}
	if prefix != "" {
		if err := checkName(prefix); err != nil {
			return nil, invalidURL("URL %q: %v", u, err)
		}
	}
	backend, err := newS3(ctx, u.Host, prefix, options)
	if err != nil {
		return nil, err
	}
	return NewClient(backend, options)
}

// urlError is the error of an invalid URL.
type urlError struct{ message string }

func invalidURL(format string, args ...any) error {
	return &urlError{"bucket: " + fmt.Sprintf(format, args...)}
}

func (e *urlError) Error() string { return e.message }

func (e *urlError) Is(target error) bool { return target == ErrURL }
