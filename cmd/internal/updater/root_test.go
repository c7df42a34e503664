package updater

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/cmd/internal/cli"
	"docstore/queue/codec"
)

// asCommand in the environment makes the test binary run the command, for tests that kill
// it.
const asCommand = "DOCSTORE_UPDATER_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		cli.Main(New)
	}
	goleak.VerifyTestMain(m)
}

// result is the result of a command.
type result struct {
	status         int
	stdout, stderr string
}

// run runs the command in this process.
func run(ctx context.Context, stdin io.Reader, args ...string) result {
	var stdout, stderr bytes.Buffer
	env := &cli.Env{Stdin: stdin, Stdout: &stdout, Stderr: &stderr, Now: time.Now}
	status := cli.Run(ctx, New, env, args)
	return result{status, stdout.String(), stderr.String()}
}

// ok runs the command and requires success.
func ok(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	r := run(t.Context(), strings.NewReader(stdin), args...)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	return r
}

// lastLine returns the last line of standard error, which is the command's error.
func (r result) lastLine() string {
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	return lines[len(lines)-1]
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func dump(t *testing.T, queueDir string, args ...string) string {
	t.Helper()
	return ok(t, "", append([]string{"dump", "--queue", queueDir}, args...)...).stdout
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{},
		{"append"},
		{"append", "--queue", dir, "--codec", "zip"},
		{"append", "--queue", dir, "--id-field", ""},
		{"append", "--queue", dir, "--flush-interval", "-1s"},
		{"append", "--queue", dir, "--segment-size", "5GiB"},
		{"append", "--queue", dir, "--segment-size", "10"},
		{"append", "--queue", dir, "--segment-size", "32767"},
		{"append", "--queue", dir, "--segment-size", "big"},
		{"append", "--queue", dir, "-", "-"},
		{"dump", "--queue", dir, "more"},
		{"dump", "--queue", dir, "--id-field", ""},
		{"compact", "--queue", dir, "--max-dead", "2"},
		{"compact", "--queue", dir, "--delete-after", "-1s"},
		{"truncate", "--queue", dir},
		{"truncate", "--queue", dir, "--to", "x"},
		{"truncate", "--queue", dir, "--to", "4294967295"},
		{"truncate", "--queue", dir, "--to", "8/4096"},
		{"tidy", "--queue", dir},
	} {
		r := run(t.Context(), strings.NewReader(""), args...)
		require.Equal(t, cli.ExitUsage, r.status, "%v: %s", args, r.stderr)
		require.Regexp(t, `^docstore-updater: .+; see docstore-updater.* --help\n$`, r.stderr)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "a command with invalid flags must not create files")
}

// TestAppendReportsAllInvalidFlags: all errors are reported in one line.
func TestAppendReportsAllInvalidFlags(t *testing.T) {
	r := run(t.Context(), strings.NewReader(""), "append", "--codec", "zip", "--format", "xml", "--id-field", "", "--flush-interval", "-1s", "--segment-age", "old", "--segment-size", "5GiB", "--flush-evry", "3")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Equal(t, `docstore-updater: unknown flag --flush-evry; did you mean --flush-every?; --segment-age "old": write a duration, such as 250ms, 10s or 1h30m; `+
		`--id-field is empty; give the name of the field that holds the id; --format xml: write one of `+strings.Join(formatNames(), ", ")+
		`; --codec zip: this build has `+strings.Join(codec.Names(), ", ")+`; --flush-interval -1s: must not be negative; `+
		`--segment-size 5GiB: must be between 32 KiB and 4 GiB; --queue is missing: give the directory of the queue; see docstore-updater append --help`+"\n", r.stderr)
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"append", "--help"}, {"check", "--help"}, {"dump", "--help"}, {"stats", "--help"}, {"seal", "--help"}, {"truncate", "--help"}} {
		help := ok(t, "", args...).stdout
		require.Contains(t, help, "Usage:")
		for line := range strings.Lines(help) {
			if !strings.HasPrefix(line, "      --") {
				require.LessOrEqual(t, len(line), 121, line)
			}
		}
		if len(args) > 1 {
			require.Contains(t, help, "Examples:\n  docstore-updater "+args[0])
		}
	}
}

func TestNoSuchQueue(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, command := range []string{"check", "dump", "stats", "seal"} {
		r := run(t.Context(), nil, command, "--queue", missing)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Equal(t, "docstore-updater: no queue in "+missing+"; give the directory that append writes, or a copy of it\n", r.stderr)
		require.NoDirExists(t, missing)
	}
}
