package demo

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/listen"
	"docstore/internal/servertest"
)

// smallDemo runs a demonstration that takes less time than the real one.
func smallDemo(ctx context.Context, t *testing.T, stdout *servertest.Buffer, exit bool) error {
	t.Setenv("TMPDIR", t.TempDir())
	env := &cli.Env{Stdout: stdout, Stderr: stdout, Now: time.Now}
	d := demo{documents: 500, fetches: 200, fetchesMany: 640, exit: exit}
	err := d.run(ctx, env)
	left, globErr := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, globErr)
	require.Empty(t, left, "the demonstration must remove its files")
	return err
}

func TestDemo(t *testing.T) {
	var out servertest.Buffer
	require.NoError(t, smallDemo(t.Context(), t, &out, true), out.String())
	text := out.String()
	for _, want := range []string{
		"1. Append   500 generated job postings", "2. Index ", "3. Serve    Boxcar on 127.0.0.1:", "4. Fetch    job-0000500",
		"callers:  1, random documents: 200", "callers: 64, random documents: 640",
		"5. Change   job-0000500 updated, job-0000001 deleted", `"title":"(filled) `, "job-0000001  not found",
		"6. Try", "curl http://127.0.0.1:", "/documents/jobs/job-0000500",
	} {
		require.Contains(t, text, want)
	}
	require.LessOrEqual(t, strings.Count(text, "\n"), 30, text)
}

func TestDemoServesUntilInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out servertest.Buffer
	go func() {
		servertest.Until(ctx, func() bool { return strings.Contains(out.String(), "press Ctrl-C") })
		cancel()
	}()
	require.NoError(t, smallDemo(ctx, t, &out, false), out.String())
}

func TestDemoInterruptedEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out servertest.Buffer
	require.NoError(t, smallDemo(ctx, t, &out, false), out.String())
}

func TestAddressOrAny(t *testing.T) {
	taken, err := listen.TCP("", "127.0.0.1:0")
	require.NoError(t, err)
	address := taken.Addr().String()
	require.Equal(t, "127.0.0.1:0", addressOrAny(address))
	require.NoError(t, taken.Close())
	require.Equal(t, address, addressOrAny(address))
	require.Empty(t, whyNot(address, address))
	require.Equal(t, " ("+address+" is in use)", whyNot(address, "127.0.0.1:1"))
}
