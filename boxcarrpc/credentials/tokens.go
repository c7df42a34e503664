package credentials

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"

	"docstore/boxcarrpc"
)

// Limits of tokens. A shorter one could be guessed.
const (
	MinTokenBytes = 16
	MaxTokenBytes = boxcarrpc.MaxTokenBytes
	maxTokens     = 16 << 10 // of a file
)

// Tokens is a file of tokens and of the names of those who show them.
type Tokens struct {
	file *fromFiles[[]entry]
}

// An entry is a token that is not kept itself.
type entry struct {
	name string
	sum  [sha256.Size]byte
}

var (
	errNoToken      = errors.New("a token or a certificate is needed")
	errUnknownToken = errors.New("the token is not known")
)

// OpenTokens reads a file of tokens, which must have one. log may be nil; it gets
// changes and faults.
//
// The file is read again when it changes. A token that is no longer in it is revoked,
// and one without any token revokes all. If the file is missing or malformed, the
// tokens that were read before stay in force, and the log says which.
func OpenTokens(path string, log *slog.Logger) (*Tokens, error) {
	file, err := newFromFiles(log, func() ([]entry, error) { return readTokens(path) }, path)
	if err != nil {
		return nil, err
	}
	if len(file.mu.value) == 0 {
		return nil, fmt.Errorf("%s: no token in it", path)
	}
	file.describe = describeTokens
	return &Tokens{file}, nil
}

// describeTokens says how many tokens there are, and of how many clients.
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

// Authenticate is for ServerOptions.Authenticate: a client is who its token says
// or, without one, who its certificate says, and is not let in without either. How
// long it takes does not depend on what the token has in common with others.
func (t *Tokens) Authenticate(peer *boxcarrpc.Peer, token string) (identity string, err error) {
	if token == "" {
		if peer.Identity == "" {
			return "", errNoToken
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
		return "", errUnknownToken
	}
	return entries[found].name, nil
}

// readTokens reads a server's file. Its errors say where, and never what.
func readTokens(path string) ([]entry, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var entries []entry
	names := make(map[[sha256.Size]byte]string)
	for i, line := range bytes.Split(content, []byte("\n")) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		fail := func(format string, args ...any) ([]entry, error) {
			return nil, fmt.Errorf("%s: line %d: %s", path, i+1, fmt.Sprintf(format, args...))
		}
		if len(fields) != 2 {
			return fail("%d words, must be a name and a token", len(fields))
		}
		name, token := string(fields[0]), fields[1]
		if err := checkToken(token); err != nil {
			return fail("%v", err)
		}
		e := entry{name, sha256.Sum256(token)}
		switch other, taken := names[e.sum]; {
		case taken:
			return fail("the token of %q again", other)
		case len(entries) >= maxTokens:
			return fail("more than %d tokens", maxTokens)
		}
		names[e.sum] = name
		entries = append(entries, e)
	}
	return entries, nil
}

// Token reads a client's token, for PoolOptions.Token. log may be nil; it is told of
// changes.
func Token(path string, log *slog.Logger) (func() (string, error), error) {
	file, err := newFromFiles(log, func() (string, error) {
		content, err := readFile(path)
		if err != nil {
			return "", err
		}
		fields := bytes.Fields(content)
		if len(fields) != 1 {
			return "", fmt.Errorf("%s: %d words, must be one token", path, len(fields))
		}
		if err := checkToken(fields[0]); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return string(fields[0]), nil
	}, path)
	if err != nil {
		return nil, err
	}
	return func() (string, error) { return file.get(), nil }, nil
}

func checkToken(token []byte) error {
	if n := len(token); n < MinTokenBytes || n > MaxTokenBytes {
		return fmt.Errorf("a token of %d bytes, must have %d to %d", n, MinTokenBytes, MaxTokenBytes)
	}
	return nil
}
