package credentials

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"docstore/boxcarrpc"
)

// Limits of tokens. The minimum protects against guessing.
const (
	MinTokenBytes = 16
	MaxTokenBytes = boxcarrpc.MaxTokenBytes
	maxTokens     = 16 << 10 // tokens in a file
)

// Tokens authenticates clients by the tokens in a file.
type Tokens struct {
	file *fromFiles[[]entry]
}

// An entry is a client's name with the hash of its token.
type entry struct {
	name string
	sum  [sha256.Size]byte
}

var (
	errNoToken      = errors.New("a token or a certificate is required")
	errUnknownToken = errors.New("unknown token")
)

// OpenTokens reads a file of tokens. It fails if the file has no token. Changes and
// failures are logged to log, which may be nil.
//
// The file is read again when it changes. A token that is removed is revoked; a file
// without tokens revokes all. If the file is missing or malformed, the previous tokens
// stay in use, and the log has their number.
func OpenTokens(path string, log *slog.Logger) (*Tokens, error) {
	file, err := newFromFiles(log, func() ([]entry, error) { return readTokens(path) }, path)
	if err != nil {
		return nil, err
	}
	if len(file.mu.value) == 0 {
		return nil, fmt.Errorf("%s: no token found", path)
	}
	file.describe = describeTokens
	return &Tokens{file}, nil
}

// describeTokens returns the numbers of tokens and of clients.
func describeTokens(entries []entry) string {
	if len(entries) == 0 {
		return "no token: all are revoked"
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.name] = true
	}
	return fmt.Sprintf("%d tokens of %d clients", len(entries), len(names))
}

// Authenticate is for ServerOptions.Authenticate. The identity of a client is the name
// of its token or, without a token, that of its certificate. It fails without either. Its
// duration does not depend on the contents of the token.
func (t *Tokens) Authenticate(peer *boxcarrpc.Peer, token string) (boxcarrpc.Identity, error) {
	if token == "" {
		if !peer.Identity.Authenticated() {
			_, err := boxcarrpc.IdentityOfTLS(peer.TLS)
			return boxcarrpc.Identity{}, cmp.Or(err, errNoToken)
		}
		return peer.Identity, nil
	}
	sum := sha256.Sum256([]byte(token))
	found := -1
	entries := t.file.get()
	for i := range entries {
		same := subtle.ConstantTimeCompare(entries[i].sum[:], sum[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return boxcarrpc.Identity{}, errUnknownToken
	}
	return boxcarrpc.Identity{Kind: boxcarrpc.TokenIdentity, Name: entries[found].name}, nil
}

// BearerToken returns the token of an Authorization header, "Bearer TOKEN" with the scheme in
// upper or lower case. Of another scheme it returns the whole value, which is no token.
func BearerToken(authorization string) string {
	if scheme, token, ok := strings.Cut(authorization, " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimLeft(token, " ")
	}
	return authorization
}

// readTokens reads a server's file. Its errors contain the line number and no token.
func readTokens(path string) ([]entry, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var entries []entry
	names := make(map[[sha256.Size]byte]string)
	for i, line := range strings.Split(string(content), "\n") {
		if isComment(line) {
			continue
		}
		fail := func(format string, args ...any) ([]entry, error) {
			return nil, fmt.Errorf("%s: line %d: %s", path, i+1, fmt.Sprintf(format, args...))
		}
		name, rest, err := cutName(line)
		if err != nil {
			return fail("%v", err)
		}
		words := strings.Fields(rest)
		if len(words) != 1 {
			return fail("%d words: must be a name and a token; quote a name with blanks", 1+len(words))
		}
		token := words[0]
		if err := checkToken(token); err != nil {
			return fail("%v", err)
		}
		e := entry{name, sha256.Sum256([]byte(token))}
		switch other, taken := names[e.sum]; {
		case taken:
			return fail("same token as %q", other)
		case len(entries) >= maxTokens:
			return fail("more than %d tokens", maxTokens)
		}
		names[e.sum] = name
		entries = append(entries, e)
	}
	return entries, nil
}

// Token reads a client's token file and returns a function for PoolOptions.Token.
// Changes and failures are logged to log, which may be nil.
func Token(path string, log *slog.Logger) (func() (string, error), error) {
	file, err := newFromFiles(log, func() (string, error) {
		content, err := readFile(path)
		if err != nil {
			return "", err
		}
		fields := strings.Fields(string(content))
		if len(fields) != 1 {
			return "", fmt.Errorf("%s: %d words: must be one token", path, len(fields))
		}
		if err := checkToken(fields[0]); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return fields[0], nil
	}, path)
	if err != nil {
		return nil, err
	}
	return func() (string, error) { return file.get(), nil }, nil
}

func checkToken(token string) error {
	if n := len(token); n < MinTokenBytes || n > MaxTokenBytes {
		return fmt.Errorf("token of %d bytes: must have %d to %d", n, MinTokenBytes, MaxTokenBytes)
	}
	return nil
}
