package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
)

// TestRelease makes a release of a clone whose CHANGELOG names it.
func TestRelease(t *testing.T) {
	clone := filepath.Join(t.TempDir(), "clone")
	command(t, "git", "clone", "-q", "--depth", "1", "file://"+absolute(t, "../.."), clone)
	release := func(version string) (string, error) {
		c := exec.CommandContext(t.Context(), filepath.Join(clone, "scripts", "release"), version)
		c.Env = append(os.Environ(), "ARCHES="+runtime.GOARCH)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	for version, problem := range map[string]string{"1.2": "usage: ", "v9.9.9": `no section "## 9.9.9"`} {
		out, err := release(version)
		require.Error(t, err)
		require.Contains(t, out, problem)
	}
	changelog := filepath.Join(clone, "CHANGELOG.md")
	content, err := os.ReadFile(changelog)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(changelog, []byte(strings.Replace(string(content), "## 0.1.0", "## 9.9.9", 1)), 0o600))
	out, err := release("v9.9.9")
	require.Error(t, err)
	require.Contains(t, out, "not committed")
	command(t, "git", "-C", clone, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "release")

	out, err = release("v9.9.9")
	require.NoError(t, err, out)
	dir := filepath.Join(clone, "dist", "release-v9.9.9")
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	sums, err := check.CombinedOutput()
	require.NoError(t, err, string(sums))
	require.Len(t, regexp.MustCompile(`: OK\n`).FindAllString(string(sums), -1), 3, "archive, image and bill: %s", sums)

	var bill struct {
		Components []struct {
			Name     string
			Licenses []struct{ License struct{ ID string } }
		}
	}
	readJSON(t, filepath.Join(dir, "docstore-v9.9.9-sbom.json"), &bill)
	require.Greater(t, len(bill.Components), 50)
	for _, c := range bill.Components {
		require.Len(t, c.Licenses, 1, c.Name)
		require.NotEqual(t, "github.com/rasky/go-lzo", c.Name)
	}
	unpacked := t.TempDir()
	command(t, "tar", "-xzf", filepath.Join(dir, "docstore-v9.9.9-linux-"+runtime.GOARCH+".tar.gz"), "-C", unpacked)
	unpacked = filepath.Join(unpacked, "docstore-v9.9.9-linux-"+runtime.GOARCH)
	said, err := exec.CommandContext(t.Context(), filepath.Join(unpacked, "bin", "docserviced"), "--version").Output()
	require.NoError(t, err)
	require.Contains(t, string(said), "docserviced 9.9.9 (commit ")
	pasteReadme(t, unpacked)
}

// pasteReadme runs the first block of README.md in the directory of an archive, without its first
// line, which builds, and requires a document.
func pasteReadme(t *testing.T, dir string) {
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "```sh run\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	build, block, _ := strings.Cut(block, "\n")
	require.Regexp(t, "^go build ", build)
	http := freeport.Address(t)
	shell := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(block, "127.0.0.1:7071", http)+"kill %1; wait")
	shell.Dir = dir
	shell.Env = append(os.Environ(), "DOCSERVICED_HTTP="+http, "DOCSERVICED_BOXCAR="+freeport.Address(t))
	document, err := shell.Output()
	require.NoError(t, err)
	require.Contains(t, string(document), `"id": "bash"`)
}

// TestReleaseRefusesLicences: the default build of the commands has the GPL codec.
func TestReleaseRefusesLicences(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "docstore-updater")
	command(t, "go", "build", "-C", "../..", "-o", bin, "./cmd/docstore-updater")
	out, err := exec.CommandContext(t.Context(), "go", "run", "../../internal/sbom", bin).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "go-lzo: licence GPL-2.0-only is not permitted")
}

func absolute(t *testing.T, path string) string {
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	return path
}
