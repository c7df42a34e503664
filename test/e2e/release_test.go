package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
)

// buildRelease builds the commands of the last release from the source stored by
// scripts/record-release. It returns their directory and the version.
func buildRelease(t *testing.T) (dir, release string) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join("testdata", "release-*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, records, 1, "the last release, recorded by scripts/record-release")
	source, dir := t.TempDir(), t.TempDir()
	out, err := exec.Command("tar", "-x", "-z", "-f", records[0], "-C", source).CombinedOutput()
	require.NoError(t, err, string(out))
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/...")
	build.Dir = source
	out, err = build.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(records[0]), "release-"), ".tar.gz")
}

// TestLastRelease: clients of the last release work with current servers and the reverse, and
// each version of the daemon continues with the queue and the index that the other has
// written, as in a rolling upgrade and its rollback.
func TestLastRelease(t *testing.T) {
	t.Parallel()
	release, name := buildRelease(t)
	t.Logf("the last release is %s", name)
	dir := t.TempDir()
	queue, data := filepath.Join(dir, "queue"), filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(queue, 0o755))
	documents := corpus(t)[:2000]
	commands := map[string]string{"release": release, "now": binaries}
	run := func(version, name string, stdin []byte, args ...string) string {
		cmd := exec.Command(filepath.Join(commands[version], name), args...)
		cmd.Stdin = bytes.NewReader(stdin)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "%s of %s: %s", name, version, stderr.String())
		return string(out)
	}
	// Upgrade, downgrade, upgrade.
	for step, server := range []string{"release", "now", "release", "now"} {
		part := documents[step*500 : (step+1)*500]
		run(server, "docstore-updater", ndjson(part), "append", "--queue", queue, "--quiet")
		d := &daemon{boxcar: freeport.Address(t), http: freeport.Address(t)}
		d.process = launch(t, exec.Command(filepath.Join(commands[server], "docserviced"), "serve", "--collection", collection+"="+queue,
			"--data", data, "--boxcar", d.boxcar, "--http", d.http))
		d.waitReady(t)
		var want, ids strings.Builder
		for _, document := range documents[:(step+1)*500] {
			ids.WriteString(document.id + "\n")
			want.WriteString(`{"id":"` + document.id + `","found":true,"document":` + string(document.line) + "}\n")
		}
		for _, client := range []string{"release", "now"} {
			got := run(client, "boxcar", []byte(ids.String()), "mget", "--servers", d.boxcar, "--collection", collection, "-")
			require.True(t, want.String() == got, "a client of %s and a server of %s", client, server)
			got = run(client, "boxcar", nil, "get", "--servers", d.boxcar, "--collection", collection, documents[0].id)
			require.Equal(t, string(documents[0].line)+"\n", got)
			require.Contains(t, run(client, "boxcar", nil, "slots", "--servers", d.boxcar), "lowest free")
			run(client, "boxcar", nil, "drain", "--servers", d.boxcar)
			run(client, "boxcar", nil, "undrain", "--servers", d.boxcar)
		}
		d.stop(t)
	}
}
