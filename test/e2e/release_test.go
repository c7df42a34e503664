package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprocess"
)

// release is the last release, built once for all tests.
var release struct {
	sync.Once
	name string
	err  error
}

// buildRelease builds the commands of the last release from the source stored by
// scripts/record-release, in a directory, and returns its version.
func buildRelease(dir string) (name string, err error) {
	records, err := filepath.Glob(filepath.Join("testdata", "release-*.tar.xz"))
	if err != nil {
		return "", err
	}
	if len(records) != 1 {
		return "", fmt.Errorf("want one release, recorded by scripts/record-release, and there are %q", records)
	}
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		return "", err
	}
	if out, err := exec.Command("tar", "-x", "-J", "-f", records[0], "-C", source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/...")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", records[0], err, out)
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(records[0]), "release-"), ".tar.xz"), nil
}

// versions are the directories of the commands of the last release, "release", and of this
// one, "now".
type versions map[string]string

func buildVersions(t *testing.T) versions {
	t.Helper()
	dir := filepath.Join(binaries, "release") // removed with the others
	release.Do(func() {
		if release.err = os.Mkdir(dir, 0o700); release.err == nil {
			release.name, release.err = buildRelease(dir)
		}
	})
	require.NoError(t, release.err)
	t.Logf("the last release is %s", release.name)
	return versions{"release": dir, "now": binaries}
}

// run runs a command, which succeeds, and returns its output.
func (v versions) run(t *testing.T, version, name string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(v[version], name), args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s of %s: %s", name, version, stderr.String())
	return string(out)
}

// requireAll requires a client to read documents.
func (v versions) requireAll(t *testing.T, client string, documents []document, flags ...string) {
	t.Helper()
	var want, ids strings.Builder
	for _, d := range documents {
		ids.WriteString(d.id + "\n")
		want.WriteString(`{"id":"` + d.id + `","found":true,"document":` + string(d.line) + "}\n")
	}
	got := v.run(t, client, "boxcar", []byte(ids.String()), append([]string{"mget", "--collection", collectionName, "-"}, flags...)...)
	require.True(t, want.String() == got, "a client of %s", client)
}

// TestLastRelease: clients of the last release work with current servers and the reverse, and
// each version of the daemon continues with the queue and the index that the other has
// written, as in a rolling upgrade and its rollback.
func TestLastRelease(t *testing.T) {
	t.Parallel()
	versions := buildVersions(t)
	dir := t.TempDir()
	queue, data := filepath.Join(dir, "queue"), filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(queue, 0o755))
	documents := corpus(t)[:2000]
	run := func(version, name string, stdin []byte, args ...string) string {
		t.Helper()
		return versions.run(t, version, name, stdin, args...)
	}
	// Upgrade, downgrade, upgrade.
	for step, server := range []string{"release", "now", "release", "now"} {
		part := documents[step*500 : (step+1)*500]
		run(server, "docstore-updater", ndjson(part), "append", "--queue", queue, "--quiet")
		d := &daemon{boxcar: freeport.Address(t), http: freeport.Address(t)}
		d.Command = testprocess.Start(t, exec.Command(filepath.Join(versions[server], "docserviced"), "serve", "--collection", collectionName+"="+queue,
			"--data", data, "--boxcar", d.boxcar, "--http", d.http))
		d.waitReady(t)
		for _, client := range []string{"release", "now"} {
			versions.requireAll(t, client, documents[:(step+1)*500], "--servers", d.boxcar)
			got := run(client, "boxcar", nil, "get", "--servers", d.boxcar, "--collection", collectionName, documents[0].id)
			require.Equal(t, string(documents[0].line)+"\n", got)
			require.Contains(t, run(client, "boxcar", nil, "slots", "--servers", d.boxcar), "lowest free")
			run(client, "boxcar", nil, "drain", "--servers", d.boxcar)
			run(client, "boxcar", nil, "undrain", "--servers", d.boxcar)
		}
		d.Stop(t)
	}
}
