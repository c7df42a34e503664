package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxPackages bounds the packages of other modules and of the standard library that the first
// command of a new user compiles. Those of this module do not count: dividing one into several
// compiles no more code.
const maxPackages = 359

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
	require.Contains(t, packages, "docstore/docservice/server")
	others := 0
	for _, path := range packages {
		if !strings.HasPrefix(path, "docstore/") {
			others++
		}
		for _, module := range heavy {
			require.False(t, strings.HasPrefix(path, module), "%s is a dependency", path)
		}
	}
	require.LessOrEqual(t, others, maxPackages)
}
