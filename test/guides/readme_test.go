//go:build unix

package guides

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The Go example of the README compiles. An overlay makes it a package of the module.
func TestReadmeExampleCompiles(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, example, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "```")
	source := `package readme

import (
	"context"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

func example(ctx context.Context) ([]byte, error) {
` + example + `
	return document, err
}
`
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "example.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "readme", "example.go"): file}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	command := exec.Command("go", "build", "-overlay", overlay, "./readme")
	command.Dir = root
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
