package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxPackages bounds what the first command of a new user compiles.
const maxPackages = 400

// heavy are modules that the demonstration does not need: object stores, etcd, gRPC, traces,
// gossip, and what only other commands need.
var heavy = []string{
	"github.com/aws/", "github.com/hashicorp/", "github.com/miekg/dns", "github.com/parquet-go/", "github.com/twmb/franz-go/", "github.com/nats-io/",
	"github.com/jackc/pgx/", "github.com/brianvoe/gofakeit/", "github.com/cheggaaa/pb/", "go.etcd.io/", "go.opentelemetry.io/", "go.uber.org/zap",
	"go.yaml.in/", "golang.org/x/net/", "google.golang.org/grpc",
}

// README's first command compiles few packages, and links nothing that it does not run.
func TestFewDependencies(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "docstore/cmd/docstore-demo")
	out, err := list.Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "docstore/cmd/internal/daemon")
	for _, path := range packages {
		for _, module := range heavy {
			require.False(t, strings.HasPrefix(path, module), "%s is a dependency", path)
		}
	}
	require.LessOrEqual(t, len(packages), maxPackages)
}
