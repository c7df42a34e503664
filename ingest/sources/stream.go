package sources

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"docstore/boxcarrpc/credentials"
	"docstore/ingest/envelope"
	"docstore/ingest/records"
)

// maxPasswordBytes is the maximum size of a password file.
const maxPasswordBytes = 4 << 10

// secretOptions are the options of all URLs of streams.
var secretOptions = []string{"tls", "ca", "cert", "key", "user", "password-file"}

// streamURL is a URL of a stream: SCHEME://HOST:PORT[,...]/PATH?OPTION=VALUE&...
type streamURL struct {
	form    string // for messages
	hosts   []string
	path    string
	options map[string]string
}

// parseStream parses a URL with the given options and secretOptions.
func (o *Options) parseStream(text, form string, options ...string) (*streamURL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, invalid("%sfrom: invalid URL: %w; want %s", o.Prefix, err, form)
	}
	s := &streamURL{form: form, hosts: strings.Split(u.Host, ","), path: strings.TrimPrefix(u.Path, "/"), options: make(map[string]string)}
	query, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		return nil, o.refuse(u.Redacted(), "invalid options: %w", err)
	case u.User != nil:
		return nil, o.refuse(u.Redacted(), "write user=NAME&password-file=FILE, because other users can read command lines")
	case slices.Contains(s.hosts, "") || s.path == "" || strings.Contains(s.path, "/") || u.Fragment != "":
		return nil, o.refuse(text, "want %s", form)
	}
	options = append(options, secretOptions...)
	for name, values := range query {
		switch {
		case !slices.Contains(options, name):
			return nil, o.refuse(text, "unknown option %q, want %s", name, strings.Join(options, ", "))
		case len(values) > 1 || values[0] == "":
			return nil, o.refuse(text, "option %s needs one value", name)
		}
		s.options[name] = values[0]
	}
	if value, given := s.options["tls"]; given && value != "true" {
		return nil, o.refuse(text, "tls=%s: want true", value)
	}
	if (s.options["user"] == "") != (s.options["password-file"] == "") {
		return nil, o.refuse(text, "set both user and password-file, or neither")
	}
	return s, nil
}

// format returns the format of the messages.
func (s *streamURL) format(o *Options) (envelope.Format, error) {
	if o.Format != records.FormatAuto {
		return "", invalid("%sformat %s is for files; write the format of messages in the URL: %s?format=%s", o.Prefix, o.Format, s.form, envelope.JSON)
	}
	if format := s.options["format"]; format != "" {
		return envelope.Format(format), nil
	}
	return envelope.JSON, nil
}

// tls reads the files of certificates. It returns nil without TLS.
func (s *streamURL) tls(log *slog.Logger) (*tls.Config, error) {
	files := credentials.Files{CA: s.options["ca"], Certificate: s.options["cert"], Key: s.options["key"]}
	if s.options["tls"] == "" && files == (credentials.Files{}) {
		return nil, nil
	}
	current, err := credentials.ClientTLS(files, log)
	if err != nil {
		return nil, err
	}
	return current()
}

// password reads the password file.
func (s *streamURL) password() (string, error) {
	path := s.options["password-file"]
	if path == "" {
		return "", nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password := strings.TrimSpace(string(content))
	if password == "" || len(content) > maxPasswordBytes {
		return "", fmt.Errorf("%s: want a password of 1 to %d bytes", path, maxPasswordBytes)
	}
	return password, nil
}

// parseRanges parses ascending numbers and ranges below a limit: 0-7,9.
func parseRanges(text string, limit int32) (numbers []int32, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseInt(first, 10, 32)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseInt(last, 10, 32)
		}
		if err != nil || from < 0 || to < from || to >= int64(limit) || len(numbers) > 0 && int32(from) <= numbers[len(numbers)-1] {
			return nil, fmt.Errorf("%s: want ascending numbers and ranges below %d, such as 0-7,9", text, limit)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, int32(n))
		}
	}
	return numbers, nil
}
