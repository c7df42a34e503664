package credentials

import (
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
)

// FuzzCutName: each name of an identity can be written quoted, and one without blanks and
// quotes as it is. Of any other line a name is read, which has blanks only if it is quoted.
func FuzzCutName(f *testing.F) {
	for _, line := range []string{"frontend jobs", `"Front End 1" jobs`, ` " local"	*`, `"a"b`, `a"b" c`, `"" x`, `"a\"b\\" c`, "\"\\x1b\" x", "`a` b", `"a`, "*"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if name := line; boxcarrpc.CheckIdentityName(name) == nil {
			got, rest, err := cutName(strconv.Quote(name) + "\tjobs")
			require.NoError(t, err)
			require.Equal(t, name, got)
			require.Equal(t, "\tjobs", rest)
			if !strings.ContainsAny(name, `" `) && !strings.ContainsFunc(name, unicode.IsSpace) {
				got, _, err := cutName("  " + name + " jobs")
				require.NoError(t, err)
				require.Equal(t, name, got)
			}
		}
		name, rest, err := cutName(line)
		if err != nil {
			return
		}
		require.NoError(t, boxcarrpc.CheckIdentityName(name))
		quoted := strings.HasPrefix(strings.TrimSpace(line), `"`)
		require.True(t, quoted || !strings.ContainsFunc(name, unicode.IsSpace))
		require.True(t, rest == "" || unicode.IsSpace([]rune(rest)[0]))
	})
}
