package credentials

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		{"", "public", false}, {"", "jobs", false},
	} {
		require.Equal(t, test.allowed, a.Allows(test.identity, test.collection), "%s: %s", test.identity, test.collection)
	}

	// A change takes effect; a malformed file does not.
	now := time.Now()
	a.file.now = func() time.Time { now = now.Add(time.Minute); return now }
	write("frontend salaries\n")
	require.True(t, a.Allows("frontend", "salaries"))
	require.False(t, a.Allows("frontend", "jobs"))
	write("frontend\n")
	require.True(t, a.Allows("frontend", "salaries"))
	require.NoError(t, os.Remove(path))
	require.True(t, a.Allows("frontend", "salaries"))
}

func TestMalformedPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access")
	for text, problem := range map[string]string{
		"a jobs\nb\n":         `access: line 2: "b" has no collections; name them, or write * for all`,
		"a jobs\n\na other\n": `access: line 3: "a" has permissions in an earlier line`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := OpenAccess(path, nil)
		require.ErrorContains(t, err, problem)
	}
	_, err := OpenAccess(filepath.Join(t.TempDir(), "missing"), nil)
	require.Error(t, err)
}
