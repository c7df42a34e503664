package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/cli"
)

// A check tells how far it is on a terminal, and is quiet with --quiet and without one.
func TestCheckShowsItsProgress(t *testing.T) {
	queueDir := t.TempDir()
	fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	table := o.dataDir + ".copy" // a checkpoint has no log
	for _, c := range []struct {
		terminal bool
		args     []string
		shows    string
	}{
		{true, []string{"checkpoint", "--data", o.dataDir, table}, "copying"},
		{true, []string{"checkpoint", "--quiet", "--data", o.dataDir, o.dataDir + ".other"}, ""},
		{true, []string{"check", "--data", table}, "checking jobs"},
		{true, []string{"check", "--quiet", "--data", table}, ""},
		{false, []string{"check", "--data", table}, ""},
	} {
		var out, shown lockedBuffer
		now := time.Now()
		env := &cli.Env{Stdout: &out, Stderr: &shown, Terminal: c.terminal, Now: func() time.Time {
			now = now.Add(time.Second)
			return now
		}}
		require.Equal(t, cli.ExitOK, cli.Run(context.Background(), newRoot, env, c.args), shown.String())
		if c.shows == "" {
			require.NotContains(t, shown.String(), "% ", c.args)
			continue
		}
		require.Contains(t, shown.String(), c.shows)
		require.Contains(t, shown.String(), "100%", strings.Join(c.args, " "))
	}
}
