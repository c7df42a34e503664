package credentials

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/internal/testcert"
)

// later advances the clock of f, so that it checks its files and none is racy.
func later[T any](f *fromFiles[T], d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = func() time.Time { return time.Now().Add(d) }
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "value")
	old := time.Now().Add(-time.Hour)
	write := func(content string) {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.NoError(t, os.Chtimes(path, old, old))
	}
	write("one")
	loads := 0
	var j journal
	f, err := newFromFiles(j.logger(), func() (string, error) {
		loads++
		content, err := readFile(path)
		return string(content), err
	}, path, "")
	require.NoError(t, err)
	require.Equal(t, "one", f.get())
	write("other")
	require.Equal(t, "one", f.get(), "not checked yet")
	later(f, time.Minute)
	require.Equal(t, "other", f.get())
	later(f, 2*time.Minute)
	require.Equal(t, "other", f.get())
	require.Equal(t, 2, loads, "nothing has changed")

	require.NoError(t, os.Remove(path))
	later(f, 3*time.Minute)
	require.Equal(t, "other", f.get(), "the previous value")
	require.Contains(t, j.String(), "no such file")
	later(f, 4*time.Minute)
	require.Equal(t, "other", f.get())
	require.Equal(t, 4, loads, "it retries after a failure")
	write("third")
	later(f, 5*time.Minute)
	require.Equal(t, "third", f.get())

	// The same size and modification time: another file, or one changed while it was
	// read.
	replacement := filepath.Join(dir, "new")
	require.NoError(t, os.WriteFile(replacement, []byte("4th.."), 0o600))
	require.NoError(t, os.Chtimes(replacement, old, old))
	require.NoError(t, os.Rename(replacement, path))
	later(f, 6*time.Minute)
	require.Equal(t, "4th..", f.get())
	old = time.Now().Add(7*time.Minute - time.Millisecond)
	write("fifth")
	later(f, 7*time.Minute)
	require.Equal(t, "fifth", f.get())
	write("sixth")
	later(f, 8*time.Minute)
	require.Equal(t, "sixth", f.get())
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, dir, "be-1")
	_, otherKey := ca.Files(t, dir, "be-2")
	text := testcert.Write(t, dir, "text", []byte("no PEM"))
	large := testcert.Write(t, dir, "large", make([]byte, maxFileBytes+1))
	for want, files := range map[string]Files{
		"requires a certificate and its key": {Certificate: certificate},
		"does not match":                     {Certificate: certificate, Key: otherKey},
		"no such file":                       {Certificate: certificate, Key: key, CA: filepath.Join(dir, "none")},
		"no PEM certificate":                 {Certificate: certificate, Key: key, CA: text},
		"more than 4194304 bytes":            {Certificate: certificate, Key: large},
	} {
		_, err := ServerTLS(files, nil)
		require.ErrorContains(t, err, want)
	}
	_, err := ClientTLS(Files{Key: key}, nil)
	require.ErrorContains(t, err, "set both or neither")
	_, err = ClientTLS(Files{}, nil)
	require.NoError(t, err, "the system's authorities")
}

const (
	tokenA = "5f0c9d3be1a94f0fb1f7c0a1"
	tokenB = "e2b7d0c64a8a4f1d9e55b3aa"
	tokenC = "0d4f7cc12b6a4d0c8ee01f9b"
)

func byCertificate(name string) boxcarrpc.Identity {
	return boxcarrpc.Identity{Kind: boxcarrpc.CertificateIdentity, Name: name}
}

func byToken(name string) boxcarrpc.Identity {
	return boxcarrpc.Identity{Kind: boxcarrpc.TokenIdentity, Name: name}
}

func TestTokensOfAFile(t *testing.T) {
	path := testcert.Write(t, t.TempDir(), "tokens", []byte(
		"# name\ttoken\n\nali "+tokenA+"\n ali\t"+tokenB+"\r\nbaba "+tokenC))
	tokens, err := OpenTokens(path, nil)
	require.NoError(t, err)
	anonymous, certified := &boxcarrpc.Peer{Name: "ali"}, &boxcarrpc.Peer{Identity: byCertificate("frontend")}
	nobody := boxcarrpc.Identity{}
	for _, c := range []struct {
		peer     *boxcarrpc.Peer
		token    string
		identity boxcarrpc.Identity
		err      error
	}{
		{anonymous, tokenA, byToken("ali"), nil},
		{anonymous, tokenB, byToken("ali"), nil},
		{anonymous, tokenC, byToken("baba"), nil},
		{certified, tokenC, byToken("baba"), nil},
		{certified, "", byCertificate("frontend"), nil},
		{anonymous, "", nobody, errNoToken},
		{anonymous, tokenA + "x", nobody, errUnknownToken},
		{anonymous, tokenA[1:], nobody, errUnknownToken},
		{certified, "x", nobody, errUnknownToken},
		{anonymous, "#", nobody, errUnknownToken},
		{anonymous, "ali", nobody, errUnknownToken},
	} {
		identity, err := tokens.Authenticate(c.peer, c.token)
		require.Equal(t, c.err, err, c.token)
		require.Equal(t, c.identity, identity)
	}
	testcert.Write(t, filepath.Dir(path), "tokens", []byte("baba "+tokenB))
	later(tokens.file, time.Minute)
	_, err = tokens.Authenticate(anonymous, tokenA)
	require.Equal(t, errUnknownToken, err)
	identity, err := tokens.Authenticate(anonymous, tokenB)
	require.NoError(t, err)
	require.Equal(t, byToken("baba"), identity)
}

// A token may contain quotes; a name with blanks is quoted.
func TestQuotedNamesOfTokens(t *testing.T) {
	tokens, err := OpenTokens(testcert.Write(t, t.TempDir(), "tokens", []byte(
		`"front end" `+tokenA+"\n\t\" \\\" local\"\t"+tokenB+"\r\n"+`x "`+tokenC+"\n")), nil)
	require.NoError(t, err)
	for token, name := range map[string]string{tokenA: "front end", tokenB: ` " local`, `"` + tokenC: "x"} {
		identity, err := tokens.Authenticate(&boxcarrpc.Peer{}, token)
		require.NoError(t, err)
		require.Equal(t, byToken(name), identity)
	}
}

// An empty file revokes all tokens. With a missing or malformed file the previous tokens
// stay in use, and the log has their number.
func TestEmptyTokenFileRevokesAll(t *testing.T) {
	dir := t.TempDir()
	now := time.Minute
	write := func(content string) {
		testcert.Write(t, dir, "tokens", []byte(content))
		now += time.Minute
	}
	path := testcert.Write(t, dir, "tokens", []byte("ali "+tokenA+"\nali "+tokenB+"\nbaba "+tokenC))
	var j journal
	tokens, err := OpenTokens(path, j.logger())
	require.NoError(t, err)
	good := func(token string) bool {
		later(tokens.file, now)
		_, err := tokens.Authenticate(&boxcarrpc.Peer{}, token)
		return err == nil
	}
	for _, empty := range []string{"", "\n", "# all revoked\n"} {
		write(empty)
		require.False(t, good(tokenA))
		require.False(t, good(tokenC))
		require.Contains(t, j.String(), "no token: all are revoked")
		write("ali " + tokenA + "\nali " + tokenB + "\nbaba " + tokenC)
		require.True(t, good(tokenC))
	}
	require.NoError(t, os.Remove(path))
	now += time.Minute
	require.True(t, good(tokenA), "a missing file revokes nothing")
	require.Contains(t, j.String(), "ERROR")
	require.Contains(t, j.String(), "no such file")
	require.Contains(t, j.String(), `in_force="3 tokens of 2 clients"`)
	faults := strings.Count(j.String(), "ERROR")
	for range 30 {
		now += time.Second
		require.True(t, good(tokenA))
	}
	require.Equal(t, faults, strings.Count(j.String(), "ERROR"), "once a minute")
	now += faultEvery
	require.True(t, good(tokenA))
	require.Equal(t, faults+1, strings.Count(j.String(), "ERROR"))
	write("ali " + tokenB + " too many words")
	require.True(t, good(tokenA))
	require.Contains(t, j.String(), "5 words")
	write("ali " + tokenB)
	require.False(t, good(tokenA))
	require.True(t, good(tokenB))
}

// Errors have the line number and never the token.
func TestUnusableTokenFiles(t *testing.T) {
	dir := t.TempDir()
	var many strings.Builder
	for i := range maxTokens + 1 {
		many.WriteString("a " + tokenA + strings.Repeat("x", i%100) + string(rune('A'+i/100%26)) + string(rune('a'+i/2600)) + "\n")
	}
	for want, content := range map[string]string{
		"no token found":                      "# none\n",
		"line 2: 1 words":                     "a " + tokenA + "\n" + tokenB,
		"line 1: 3 words":                     "a b " + tokenA,
		"3 words: must be":                    `"a b" c ` + tokenA,
		"line 1: the name is empty":           `"" ` + tokenA,
		"line 1: the name has unprintable":    tokenA + "\x00",
		"line 1: a quoted name must be":       `"a` + tokenA,
		"line 2: a quoted name must be":       "# \"\n\"a\"" + tokenA,
		"line 1: a name with quotes must be":  `a"b" ` + tokenA,
		"line 1: token of 15 bytes":           "a " + tokenA[:15],
		"line 1: token of 8193 bytes":         "a " + strings.Repeat("x", 8193),
		"line 3: same token as \"a\"":         "a " + tokenA + "\n\nb " + tokenA,
		"line 16385: more than 16384 tokens":  many.String(),
		"docstore-no-such-file: no such file": "",
	} {
		path := testcert.Write(t, dir, "tokens", []byte(content))
		if content == "" {
			path = "docstore-no-such-file"
		}
		_, err := OpenTokens(path, nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), tokenA[:15])
		require.NotContains(t, err.Error(), tokenB)
	}
	for want, content := range map[string]string{
		"0 words":           "",
		"2 words":           "a " + tokenA,
		"token of 15 bytes": tokenA[:15],
	} {
		_, err := Token(testcert.Write(t, dir, "token", []byte(content)), nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), tokenA[:15])
	}
}

// A server with an authority requires a client certificate that it signed, or with
// CertificateOptional any client whose certificate is absent or valid.
func TestClientCertificateRequirement(t *testing.T) {
	dir := t.TempDir()
	ca, otherCA := testcert.NewCA(t, "CA"), testcert.NewCA(t, "other")
	certificate, key := ca.Files(t, dir, "server")
	authority := ca.File(t, dir, "ca")
	mine, mineKey := ca.Files(t, dir, "mine")
	theirs, theirsKey := otherCA.Files(t, dir, "theirs")
	for _, c := range []struct {
		authority        string
		optional         bool
		client, key      string
		accepted         bool
		identityOfClient string
	}{
		{"", false, "", "", true, ""},
		{"", false, mine, mineKey, true, ""},
		{authority, false, mine, mineKey, true, "mine"},
		{authority, false, "", "", false, ""},
		{authority, false, theirs, theirsKey, false, ""},
		{authority, true, mine, mineKey, true, "mine"},
		{authority, true, "", "", true, ""},
		{authority, true, theirs, theirsKey, true, ""}, // the server does not ask for this authority, so the client sends no certificate
	} {
		server, err := ServerTLS(Files{Certificate: certificate, Key: key, CA: c.authority, CertificateOptional: c.optional}, nil)
		require.NoError(t, err)
		client, err := ClientTLS(Files{CA: authority, Certificate: c.client, Key: c.key}, nil)
		require.NoError(t, err)
		serverConfig, err := server()
		require.NoError(t, err)
		clientConfig, err := client()
		require.NoError(t, err)
		clientConfig.ServerName = "server"

		a, b := net.Pipe()
		clientErr := make(chan error, 1)
		go func() {
			conn := tls.Client(b, clientConfig)
			_, err := conn.Read(make([]byte, 1)) // a refusal comes after the handshake
			clientErr <- err
		}()
		conn := tls.Server(a, serverConfig)
		err = conn.Handshake()
		require.Equal(t, c.accepted, err == nil, "%+v: %v", c, err)
		if c.accepted {
			_, err := conn.Write([]byte("x"))
			require.NoError(t, err)
			require.Equal(t, c.identityOfClient != "", len(conn.ConnectionState().VerifiedChains) > 0)
			if c.identityOfClient != "" {
				state := conn.ConnectionState()
				identity, err := boxcarrpc.IdentityOfTLS(&state)
				require.NoError(t, err)
				require.Equal(t, byCertificate(c.identityOfClient), identity)
			}
		}
		require.Equal(t, c.accepted, <-clientErr == nil)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}
