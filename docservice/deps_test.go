package docservice

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxPackages bounds the packages that a client program links, those of the standard library
// included. There are 256.
const maxPackages = 260

// Programs link this package to fetch documents: the server, its libraries and gRPC stay out.
func TestFewDependencies(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}}", "docstore/docservice")
	out, err := list.Output()
	require.NoError(t, err)
	own := strings.Fields(`boxcarrpc boxcarrpc/budget boxcarrpc/core boxcarrpc/discovery boxcarrpc/internal/conn
		boxcarrpc/internal/faultlog boxcarrpc/internal/page boxcarrpc/internal/serverset boxcarrpc/internal/spin
		boxcarrpc/internal/turns boxcarrpc/internal/wire boxcarrpc/session boxcarrpc/subset
		docservice docservice/docservicepb docservice/internal/wire internal/canary internal/checksum internal/invariants queue/codec queue/stored`)
	modules := []string{"github.com/klauspost/compress", "github.com/rasky/go-lzo", "golang.org/x/sys", "google.golang.org/protobuf"}
	packages := strings.Split(strings.TrimSpace(string(out)), "\n")
	assert.LessOrEqual(t, len(packages), maxPackages)
	for _, line := range packages {
		path, standard, _ := strings.Cut(line, " ")
		if standard == "true" {
			continue
		}
		name, isOwn := strings.CutPrefix(path, "docstore/")
		allowed := isOwn && slices.Contains(own, name) || slices.ContainsFunc(modules, func(module string) bool {
			return path == module || strings.HasPrefix(path, module+"/")
		})
		assert.True(t, allowed, "%s is a dependency", path)
	}
}
