package docserviced

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

// readBundle returns the files of a bundle by name.
func readBundle(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[strings.TrimPrefix(header.Name, "docserviced-bundle/")] = string(content)
	}
}

// A bundle is complete but contains no secrets: no tokens, keys, passwords in settings, or
// documents.
func TestBundle(t *testing.T) {
	const password, document = "hunter2hunter2", "a document that is private"
	dir, queueDir := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", document)
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, dir, "server")
	tokens := testcert.Write(t, dir, "tokens", []byte("me "+testToken))
	mine := testcert.Write(t, dir, "me.token", []byte(testToken))

	o := newOptions()
	command := &cobra.Command{Use: "serve"}
	o.addFlags(command)
	require.NoError(t, command.ParseFlags([]string{"--collection", "jobs=" + queueDir, "--data", filepath.Join(dir, "data"), "--boxcar", "127.0.0.1:0",
		"--http", "0.0.0.0:0", "--http-debug", "--tls-cert", certificate, "--tls-key", key, "--token-file", tokens,
		"--otlp", "http://collector:" + password + "@127.0.0.1:1"}))
	require.NoError(t, command.PreRunE(command, nil))
	log := &servertest.Buffer{}
	env := &cli.Env{Stdout: log, Stderr: log, Recent: &cli.RecentLog{}}
	env.Log = env.NewLogger(&env.Level)
	r, err := newReloader(command, env)
	require.NoError(t, err)
	o.Settings = r.describe
	d, err := startProcess(env, *o)
	require.NoError(t, err)
	stop := r.start(d.Server)
	waitReady(t, d)
	env.Log.Info("serving documents", "password_in_a_url", "http://root:"+password+"@elsewhere/")

	bundle := filepath.Join(dir, "bundle.tar.gz")
	url := strings.Replace(d.HTTPAddress(), "0.0.0.0", "127.0.0.1", 1)
	result := run(t.Context(), "bundle", "--http", "https://"+url, "--tls-ca", ca.File(t, dir, "ca"), "--token-file", mine,
		"--data", filepath.Join(dir, "data"), "--unit", "", "--output", bundle)
	stop()
	require.NoError(t, d.Stop(0))
	require.Equal(t, cli.ExitOK, result.status, result.stderr)
	require.Equal(t, bundle+"\n", result.stdout)
	files := readBundle(t, bundle)
	for name, want := range map[string]string{
		"README.txt": "docserviced bundle of https://", "status.json": `"collections"`, "readyz.json": `"ready": true`,
		"metrics.txt": "docstore_build_info", "settings.txt": "token-file: " + tokens + " # flag\n", "log.txt": "serving documents",
		"goroutines.txt": "goroutine ", "heap.pprof": "", "files.txt": "LOCK", "machine.txt": "processors",
	} {
		require.Contains(t, files, name)
		require.NotEmpty(t, files[name], name)
		require.Contains(t, files[name], want)
	}
	require.NotContains(t, files["README.txt"], "missing")
	private, err := os.ReadFile(key)
	require.NoError(t, err)
	for name, content := range files {
		if name == "heap.pprof" {
			unzipped, err := gzip.NewReader(strings.NewReader(content))
			require.NoError(t, err)
			all, err := io.ReadAll(unzipped)
			require.NoError(t, err)
			content = string(all)
		}
		for _, secret := range []string{testToken, password, document, string(bytes.Split(private, []byte("\n"))[1])} {
			require.NotContains(t, content, secret, name)
		}
	}

	again := run(t.Context(), "bundle", "--http", "127.0.0.1:1", "--output", bundle)
	require.Equal(t, cli.ExitFailure, again.status)
	require.Contains(t, again.stderr, "file exists", "must not overwrite")
}

// A bundle of a stopped daemon contains the available parts.
func TestBundleOfStoppedDaemon(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	r := run(t.Context(), "bundle", "--http", "127.0.0.1:1", "--unit", "", "--output", bundle)
	require.Equal(t, cli.ExitFailure, r.status, "only facts about the machine")
	require.Contains(t, r.lastLine(), "nothing was collected, for example status.json is missing: ")
	require.NoFileExists(t, bundle)

	r = run(t.Context(), "bundle", "--http", "127.0.0.1:1", "--unit", "", "--data", t.TempDir(), "--output", bundle)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stderr, "status.json is missing: ")
	files := readBundle(t, bundle)
	require.Contains(t, files["README.txt"], "metrics.txt is missing: ")
	require.Contains(t, files["machine.txt"], "processors")

	r = run(t.Context(), "bundle", "--token-file", "t")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.stderr, "over which no token or certificate is sent; write https://HOST:PORT")
}
