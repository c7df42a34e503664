package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCallPathIsShort limits the functions of the client, apart from package core, through
// which a call passes. To see the list, run the command in the package comment.
func TestCallPathIsShort(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program: run without -short")
	}
	const packages = "docstore/boxcarrpc,docstore/boxcarrpc/internal/conn,docstore/boxcarrpc/internal/spin"
	cmd := exec.CommandContext(t.Context(), "go", "run", "-cover", "-covermode", "atomic", "-coverpkg", packages+",docstore/boxcarrpc/internal/callpath", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // otherwise it compiles more packages, for a minute
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	functions := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Greater(t, len(functions), 20, "%s", out)
	require.LessOrEqual(t, len(functions), 35, "%s", out)
}
