package guides

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// commandLines are those in fenced blocks and in backquotes, to their end.
	commandLines = regexp.MustCompile("\\b(docserviced|boxcar|docstore-updater) ([a-z]+)((?: (?:[^`\n|;&)]|\\\\\n)*)?)")
	flagsIn      = regexp.MustCompile(` --([a-z][a-z0-9-]*)`)
)

// TestCommandLines: every flag that a page gives to a command is one of that command.
func TestCommandLines(t *testing.T) {
	help := map[string]string{}
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	require.NoError(t, err)
	checked := 0
	for _, page := range append(pages, filepath.Join("..", "..", "README.md")) {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(content), "\\\n", " ")
		for _, line := range commandLines.FindAllStringSubmatch(text, -1) {
			for _, flag := range flagsIn.FindAllStringSubmatch(line[3], -1) {
				command := line[1] + " " + line[2]
				if help[command] == "" {
					out, err := exec.Command(filepath.Join(binaries, line[1]), line[2], "--help").CombinedOutput()
					require.NoError(t, err, "%s: %s: %s", page, line[0], out)
					help[command] = string(out)
				}
				checked++
				require.Regexp(t, `--`+flag[1]+`\b`, help[command], "%s: %s", page, line[0])
			}
		}
	}
	require.Greater(t, checked, 50)
}
