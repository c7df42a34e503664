package nats

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"docstore/ingest/envelope"
)

// Limits.
const (
	FetchBytes = 8 << 20 // requested ahead
	PollBytes  = 2 << 20 // decoded together

	bucketPrefix       = "KV_" // of the streams of key-value buckets
	maxStreamBytes     = 255
	maxSubjectBytes    = 1 << 10
	messagesWait       = 256 // messages between the connection and Next
	batchBytes         = 256 << 10
	openTimeout        = 30 * time.Second
	requestTimeout     = 5 * time.Second
	watchInterval      = 5 * time.Second
	retryInterval      = 250 * time.Millisecond
	missingStreamLooks = 3
)

// The kinds of ids.
const (
	IDOfSubject  = "subject"
	IDOfDocument = "document"
	IDOfHeader   = "header:" // followed by the name of the header
)

// Config is the configuration of a source.
type Config struct {
	Servers []string // HOST:PORT of some servers
	Stream  string
	Subject string // that is read, with wildcards; empty: all
	ID      string // IDOfSubject, IDOfDocument, or IDOfHeader and a name
	// Decoder decodes the messages: JSON or raw bytes.
	Decoder envelope.Decoder
	// Follow reads for ever. Without it the source ends behind the messages that the stream
	// had when it was opened.
	Follow bool
	// TLS encrypts the connections; nil: plain text unless the server requires TLS.
	TLS            *tls.Config
	User, Password string
	// Credentials is the name of a file with a JWT and its key; empty: none.
	Credentials string
}

// check completes the configuration and reports all faults.
func (c *Config) check() error {
	var errs []error
	if len(c.Servers) == 0 || slices.Contains(c.Servers, "") {
		errs = append(errs, errors.New("no server given"))
	}
	if c.Stream == "" || len(c.Stream) > maxStreamBytes || strings.ContainsAny(c.Stream, " .*>/\\\t\r\n") {
		errs = append(errs, fmt.Errorf("invalid stream %q, want a name of 1 to %d bytes without blanks, dots and wildcards", c.Stream, maxStreamBytes))
	}
	if c.Subject == "" {
		c.Subject = ">"
	}
	if !validSubject(c.Subject) {
		errs = append(errs, fmt.Errorf("invalid subject %q, want words with dots between them, * for one word and > for the last ones", c.Subject))
	}
	if c.Decoder.Format != envelope.JSON && c.Decoder.Format != envelope.Raw {
		errs = append(errs, fmt.Errorf("format %q: want json or raw", c.Decoder.Format))
	}
	switch {
	case c.ID == IDOfSubject && !strings.ContainsAny(c.Subject, "*>"):
		errs = append(errs, fmt.Errorf("subject %q is the same for all messages and cannot be the id; use a wildcard or another id", c.Subject))
	case c.ID == IDOfSubject:
	case c.ID == IDOfDocument:
		c.Decoder.IDInDocument = true
	case strings.HasPrefix(c.ID, IDOfHeader) && len(c.ID) > len(IDOfHeader):
	default:
		errs = append(errs, fmt.Errorf("invalid id %q, want subject, document or header:NAME", c.ID))
	}
	if (c.User != "" || c.Password != "") && c.Credentials != "" {
		errs = append(errs, errors.New("a user and credentials are given; give one of them"))
	}
	return errors.Join(append(errs, c.Decoder.Check())...)
}

// connectOptions returns the options of the connection. It is kept while servers are away.
func (c *Config) connectOptions() []natsgo.Option {
	options := []natsgo.Option{
		natsgo.Name("docstore"),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(retryInterval),
		natsgo.Timeout(requestTimeout),
	}
	if c.TLS != nil {
		options = append(options, natsgo.Secure(c.TLS))
	}
	if c.User != "" {
		options = append(options, natsgo.UserInfo(c.User, c.Password))
	}
	if c.Credentials != "" {
		options = append(options, natsgo.UserCredentials(c.Credentials))
	}
	return options
}
