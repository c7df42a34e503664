package simulation

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// defect is a defect that a change of the source brings back.
type defect struct {
	id    string // of the issue and its item, or of a seam: U3, V11, S07; letters tell apart the defects of an item
	what  string
	edits []edit
	// unit is the package and the -run pattern of a test that fails with the defect, separated by a
	// blank. Empty: no unit test fails.
	unit string
	// fleet: the simulated fleet finds it, and not the pools, although it is a defect of boxcarrpc.
	fleet bool
	// simulated is why the simulator cannot find the defect; empty if it should.
	simulated string
}

// edit replaces a text, which occurs once in its file.
type edit struct {
	file     string // relative to the module root
	old, new string
}

// noServer is why the simulator cannot find a defect of a source.
const noServer = "the protocol of the database or broker is not simulated"

func allDefects() []defect { return slices.Concat(issueU, issueV, seams) }

// TestDefectsApply verifies that the source has the text to be changed, and the tests to be run.
func TestDefectsApply(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, d := range allDefects() {
		t.Run(d.id, func(t *testing.T) {
			require.False(t, ids[d.id], "the id occurs twice")
			ids[d.id] = true
			require.NotEmpty(t, d.what)
			require.NotEmpty(t, d.edits)
			for _, e := range d.edits {
				source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file)))
				require.NoError(t, err)
				require.Equal(t, 1, strings.Count(string(source), e.old), "the text to replace must occur once in %s; update the defect:\n%s", e.file, e.old)
				require.NotEqual(t, e.old, e.new)
			}
			if d.unit != "" {
				requireTest(t, root, d.unit)
			}
		})
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// requireTest requires that a package has a test that the pattern matches.
func requireTest(t *testing.T, root, unit string) {
	t.Helper()
	pkg, pattern, found := strings.Cut(unit, " ")
	require.True(t, found, "%q has no pattern", unit)
	function, _, _ := strings.Cut(pattern, "/")
	matching := regexp.MustCompile(function)
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*_test.go"))
	require.NoError(t, err)
	for _, path := range files {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range testFunction.FindAllSubmatch(content, -1) {
			if matching.Match(name[1]) {
				return
			}
		}
	}
	require.Fail(t, "no test matches", "%s; update the defect", unit)
}
