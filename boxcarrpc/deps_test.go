package boxcarrpc

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Other programs embed these packages: besides the standard library they depend only on
// this module and golang.org/x/sys.
func TestFewDependencies(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		"docstore/boxcarrpc", "docstore/boxcarrpc/core", "docstore/boxcarrpc/credentials", "docstore/boxcarrpc/discovery",
		"docstore/boxcarrpc/subset")
	out, err := list.Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "docstore/boxcarrpc")
	for _, path := range packages {
		own := strings.HasPrefix(path, "docstore/boxcarrpc") || strings.HasPrefix(path, "docstore/internal/")
		require.True(t, own || strings.HasPrefix(path, "golang.org/x/sys/"), "%s is a dependency", path)
		for _, door := range []string{"boxcargrpc", "boxcarprom", "boxcarotel", "etcd", "gossip"} {
			require.NotEqual(t, "docstore/boxcarrpc/"+door, path)
			require.NotEqual(t, "docstore/boxcarrpc/discovery/"+door, path)
		}
	}
}

// Package budget is below every protocol: of this module it imports only package core.
func TestBudgetIsBelowTheProtocol(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{join .Imports \"\\n\"}}", "docstore/boxcarrpc/budget").Output()
	require.NoError(t, err)
	for path := range strings.FieldsSeq(string(out)) {
		require.True(t, !strings.HasPrefix(path, "docstore/") || path == "docstore/boxcarrpc/core", "%s is imported", path)
	}
}
