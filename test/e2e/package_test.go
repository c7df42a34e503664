package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPackage builds the Debian package, installs it into an empty root, starts the daemon
// with the command line of its unit, and removes the package.
func TestPackage(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"dpkg", "gzip"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skipf("%s is not here: this is no Debian", command)
		}
	}
	build := exec.Command(filepath.Join("..", "..", "scripts", "package"))
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	built := regexp.MustCompile(`created package: (dist/\S+\.deb)`).FindSubmatch(out)
	require.NotNil(t, built, string(out))
	deb, err := filepath.Abs(filepath.Join("..", "..", string(built[1])))
	require.NoError(t, err)

	root := t.TempDir()
	for _, dir := range []string{"info", "updates", "triggers"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "var", "lib", "dpkg", dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "var", "lib", "dpkg", "status"), nil, 0o644))
	dpkg(t, root, "--install", deb)
	serveAsInstalled(t, root)
	for _, page := range []string{"docstore-serve", "docserviced-serve", "docstore-updater-append", "boxcar-get", "docstore-sync"} {
		require.FileExists(t, filepath.Join(root, "usr", "share", "man", "man1", page+".1.gz"))
	}

	// The licence of the package is true: it has no code under the GPL.
	bill, err := os.ReadFile(filepath.Join(root, "usr", "share", "doc", "docstore", "sbom.json"))
	require.NoError(t, err)
	require.NotContains(t, string(bill), "go-lzo")
	require.FileExists(t, filepath.Join(root, "usr", "share", "doc", "docstore", "NOTICES"))
	if _, err := exec.LookPath("lintian"); err == nil {
		out, err := exec.Command("lintian", "--fail-on", "error,warning", deb).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	for _, file := range []string{"prometheus/alerts.yml", "grafana/docstore.json", "proto/docservice.proto", "examples/packages.ndjson",
		"../doc/docstore/README.md", "../doc/docstore/docs/ingest.md", "../doc/docstore/bench/README.md"} {
		require.FileExists(t, filepath.Join(root, "usr", "share", "docstore", filepath.FromSlash(file)))
	}
	version := regexp.MustCompile(`docstore_(0\.0\.0~git\d{14}\.([0-9a-f]+))`).FindStringSubmatch(deb)
	require.NotNil(t, version, deb)
	for _, command := range []string{"docstore", "docserviced", "docstore-updater", "boxcar"} {
		out, err := exec.Command(filepath.Join(root, "usr", "bin", command), "--version").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), command+" "+version[1]+" (commit "+version[2]) // the version contains its prefix
	}

	data := filepath.Join(root, "var", "lib", "docstore")
	said := dpkg(t, root, "--purge", "docstore")
	require.Contains(t, said, "the queues and indexes in "+data+" are left, and the user docstore that owns them")
	require.Contains(t, said, "rm -r "+data+" && deluser --system docstore")
	require.DirExists(t, data)
	for _, left := range []string{"usr/bin/docserviced", "lib/systemd/system/docserviced.service", "etc/docstore/docserviced.yaml"} {
		require.NoFileExists(t, filepath.Join(root, filepath.FromSlash(left)))
	}
}

// dpkg runs dpkg on a root directory, without dependencies.
func dpkg(t *testing.T, root string, args ...string) (said string) {
	t.Helper()
	args = append([]string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--force-depends", "--log=/dev/null"}, args...)
	out, err := exec.Command("dpkg", args...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// serveAsInstalled starts the command of the unit with the installed configuration, with
// directories below the root and free ports.
func serveAsInstalled(t *testing.T, root string) {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(root, "lib", "systemd", "system", "docserviced.service"))
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindSubmatch(unit)
	require.NotNil(t, line)
	words := strings.Fields(string(line[1]))
	for i, word := range words {
		if filepath.IsAbs(word) {
			words[i] = filepath.Join(root, word)
		}
	}
	queue := filepath.Join(root, "var", "lib", "docstore", "queue", "jobs")
	require.NoError(t, os.MkdirAll(queue, 0o755))
	updater := exec.Command(filepath.Join(root, "usr", "bin", "docstore-updater"), "append", "--queue", queue)
	updater.Stdin = strings.NewReader(`{"id":"a","title":"packaged"}` + "\n")
	out, err := updater.CombinedOutput()
	require.NoError(t, err, string(out))

	command := exec.Command(words[0], words[1:]...)
	command.Env = append(os.Environ(), "DOCSERVICED_COLLECTION=jobs="+queue, "DOCSERVICED_DATA="+filepath.Join(root, "var", "lib", "docstore", "index"),
		"DOCSERVICED_HTTP=127.0.0.1:0", "DOCSERVICED_BOXCAR=127.0.0.1:0")
	log, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	// The order of the two lines varies: a short queue may be indexed before the listeners
	// open.
	address, ready, lines := "", false, bufio.NewScanner(log)
	for (address == "" || !ready) && lines.Scan() {
		var line struct{ Msg, HTTP string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		if line.Msg == "serving" {
			address = line.HTTP
		}
		ready = ready || line.Msg == "the queue has been read to its end"
	}
	require.True(t, ready && address != "", "the daemon ended before it served")
	response, err := http.Get(address + "/documents/jobs/a")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	for lines.Scan() { // until it exits
	}
	require.NoError(t, command.Wait())
}
