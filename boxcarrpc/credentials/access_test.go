package credentials

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
)

func TestAccess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("# client  collections\nfrontend jobs resumes\nops *\n* public\n")
	a, err := OpenAccess(path, nil)
	require.NoError(t, err)
	for _, test := range []struct {
		identity, collection string
		allowed              bool
	}{
		{"frontend", "jobs", true}, {"frontend", "resumes", true}, {"frontend", "salaries", false}, {"frontend", "public", true},
		{"frontend", Everything, false}, {"frontend", "", false},
		{"ops", "salaries", true}, {"ops", Everything, true},
		{"other", "jobs", false}, {"other", "public", true}, {Everything, "public", true},
	} {
		require.Equal(t, test.allowed, a.Allows(byToken(test.identity), test.collection), "%s: %s", test.identity, test.collection)
		require.Equal(t, test.allowed, a.Allows(byCertificate(test.identity), test.collection), "%s: %s", test.identity, test.collection)
	}
	for _, unknown := range []boxcarrpc.Identity{{}, {Kind: boxcarrpc.LocalIdentity}, {Name: "ops"}} {
		require.False(t, a.Allows(unknown, "public"), "%#v", unknown)
	}

	// A change takes effect; a malformed file does not.
	now := time.Now()
	a.file.now = func() time.Time { now = now.Add(time.Minute); return now }
	write("frontend salaries\n")
	require.True(t, a.Allows(byToken("frontend"), "salaries"))
	require.False(t, a.Allows(byToken("frontend"), "jobs"))
	write("frontend\n")
	require.True(t, a.Allows(byToken("frontend"), "salaries"))
	require.NoError(t, os.Remove(path))
	require.True(t, a.Allows(byToken("frontend"), "salaries"))
}

func TestQuotedNamesOfPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access")
	require.NoError(t, os.WriteFile(path, []byte("\"Front End 1\" jobs\n\" local\" public\n"), 0o600))
	a, err := OpenAccess(path, nil)
	require.NoError(t, err)
	require.True(t, a.Allows(byCertificate("Front End 1"), "jobs"))
	require.False(t, a.Allows(byCertificate("Front"), "jobs"))
	require.False(t, a.Allows(byCertificate("Front"), "End"))
	require.True(t, a.Allows(byCertificate(" local"), "public"))
	require.False(t, a.Allows(byCertificate("local"), "public"))
}

func TestMalformedPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access")
	for text, problem := range map[string]string{
		"a jobs\nb\n":                            `access: line 2: "b" has no collections; name them, or write * for all`,
		"a jobs\n\na other\n":                    `access: line 3: "a" has permissions in an earlier line`,
		`"a b" jobs` + "\n" + `"a\u0020b" other`: `access: line 2: "a b" has permissions in an earlier line`,
		`"a b"`:                                  `access: line 1: "a b" has no collections`,
		`"a b"jobs`:                              `access: line 1: a quoted name must be`,
		`"a b jobs`:                              `access: line 1: a quoted name must be`,
		`a"b" jobs`:                              `access: line 1: a name with quotes must be quoted as a whole`,
		`"" jobs`:                                `access: line 1: the name is empty`,
		`"\x1b" jobs`:                            `access: line 1: the name has unprintable characters`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := OpenAccess(path, nil)
		require.ErrorContains(t, err, problem)
	}
	_, err := OpenAccess(filepath.Join(t.TempDir(), "missing"), nil)
	require.Error(t, err)
}
