package docserviced

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/servertest"
)

// Check shows progress on a terminal, and none with --quiet or without a terminal.
func TestCheckShowsItsProgress(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	table := o.DataDir + ".copy" // a checkpoint has no log
	for _, c := range []struct {
		terminal bool
		args     []string
		shows    string
	}{
		{true, []string{"checkpoint", "--data", o.DataDir, table}, "copying"},
		{true, []string{"checkpoint", "--quiet", "--data", o.DataDir, o.DataDir + ".other"}, ""},
		{true, []string{"check", "--data", table}, "checking jobs"},
		{true, []string{"check", "--data", o.DataDir, "--collection", "jobs=" + queueDir, "--ids"}, "comparing jobs"},
		{true, []string{"check", "--quiet", "--data", o.DataDir, "--collection", "jobs=" + queueDir, "--ids"}, ""},
		{true, []string{"check", "--quiet", "--data", table}, ""},
		{false, []string{"check", "--data", table}, ""},
	} {
		var out, shown servertest.Buffer
		now := time.Now()
		env := &cli.Env{Stdout: &out, Stderr: &shown, Terminal: c.terminal, Now: func() time.Time {
			now = now.Add(time.Second)
			return now
		}}
		require.Equal(t, cli.ExitOK, cli.Run(context.Background(), New, env, c.args), shown.String())
		if c.shows == "" {
			require.NotContains(t, shown.String(), "% ", c.args)
			continue
		}
		require.Contains(t, shown.String(), c.shows)
		require.Contains(t, shown.String(), "100%", strings.Join(c.args, " "))
	}
}

// A replacement shows its progress. Here its queue is incomplete, so that it stays in
// progress.
func TestReplacementShowsProgress(t *testing.T) {
	queueDir, next := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	for _, id := range []string{"b", "c", "d"} { // one segment each
		servertest.Fill(t, next, id, `{"id":"`+id+`"}`)
	}
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	for _, segment := range []string{"0000000003.seg", "0000000001.seg"} {
		require.NoError(t, os.Rename(filepath.Join(next, segment), filepath.Join(queueDir, segment)))
	}
	servertest.Until(t.Context(), func() bool { return d.Collections()[0].Status().Replacement != nil })

	var shown servertest.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		showReplacements(ctx, &cli.Env{Stderr: &shown, Terminal: true, Now: time.Now}, d.Server)
	}()
	servertest.Until(t.Context(), func() bool { return strings.Contains(shown.String(), "reindexing jobs") })
	cancel()
	<-done
	require.True(t, strings.HasSuffix(shown.String(), "\n"), "the line must be terminated")
}

// The display of the first indexing ends although a fault stops the tail.
func TestIndexingDisplayEndsAtAFault(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	servertest.FlipByte(t, queueDir, `{"id":"a"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	var shown servertest.Buffer
	showIndexing(t.Context(), &cli.Env{Stderr: &shown, Terminal: true, Now: time.Now}, d.Server)
	servertest.Until(t.Context(), func() bool { return len(d.Collections()[0].Status().Faults) > 0 })
}
