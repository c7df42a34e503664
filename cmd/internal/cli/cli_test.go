package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// testEnv collects output and has a clock that tests move.
type testEnv struct {
	Env
	out, err bytes.Buffer
	now      time.Time
}

func newTestEnv() *testEnv {
	e := &testEnv{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	e.Env = Env{Stdout: &e.out, Stderr: &e.err, Stdin: strings.NewReader(""), Now: func() time.Time { return e.now }}
	return e
}

func TestExitStatusAndErrors(t *testing.T) {
	newRoot := func(env *Env) *cobra.Command {
		root := &cobra.Command{Use: "tool", Args: cobra.NoArgs, RunE: NeedsCommand}
		add := func(use string, err error) {
			command := &cobra.Command{Use: use, Args: cobra.MaximumNArgs(1), RunE: func(*cobra.Command, []string) error { return err }}
			command.Flags().Int("n", 0, "a number")
			root.AddCommand(command)
		}
		add("good [ID]", nil)
		add("bad", errors.New("opening x: broken"))
		add("lines", errors.New("first\nsecond"))
		add("placed", fmt.Errorf("wrapped: %w", Bare(errors.New("file:7: wrong"))))
		add("misused", Usagef("--n is odd"))
		return root
	}
	for _, test := range []struct {
		args   string
		status int
		stderr string
	}{
		{"good", ExitOK, ""},
		{"bad", ExitFailure, "tool: opening x: broken\n"},
		{"lines", ExitFailure, "tool: first; second\n"},
		{"placed", ExitFailure, "wrapped: file:7: wrong\n"},
		{"misused", ExitUsage, "tool: --n is odd; see tool misused --help\n"},
		{"good --n x", ExitUsage, `tool: --n "x": write a whole number; see tool good --help` + "\n"},
		{"good --unknown", ExitUsage, "tool: unknown flag --unknown; see tool good --help\n"},
		{"good a b", ExitUsage, `tool: too many or too few arguments, "a" "b"; write tool good [ID]; see tool good --help` + "\n"},
		{"nonsense", ExitUsage, "tool: unknown command nonsense; see tool --help\n"},
		{"", ExitUsage, "tool: a command is missing; see tool --help\n"},
		{"good --log-level loud", ExitUsage, `tool: --log-level "loud": write DEBUG, INFO, WARN or ERROR; see tool good --help` + "\n"},
	} {
		t.Run(test.args, func(t *testing.T) {
			env := newTestEnv()
			require.Equal(t, test.status, Run(context.Background(), newRoot, &env.Env, strings.Fields(test.args)))
			require.Equal(t, test.stderr, env.err.String())
			require.Empty(t, env.out.String())
		})
	}

	env := newTestEnv()
	require.Equal(t, ExitOK, Run(context.Background(), newRoot, &env.Env, []string{"--version"}))
	require.Regexp(t, `^tool \S+ \(commit .+, go\S+ \w+/\w+\)\n$`, env.out.String())
	env = newTestEnv()
	require.Equal(t, ExitOK, Run(context.Background(), newRoot, &env.Env, []string{"good", "--help"}))
	require.Contains(t, env.out.String(), "--n int")
}

func TestLogsAreJSONOffTerminal(t *testing.T) {
	env := newTestEnv()
	level := slog.LevelInfo
	log := env.NewLogger(&level)
	log.Debug("unheard")
	env.Quiet().Log.Info("unheard")
	log.Info("flushed", "documents", 7)
	var line struct {
		Msg       string
		Documents int
	}
	require.NoError(t, json.Unmarshal(env.err.Bytes(), &line))
	require.Equal(t, "flushed", line.Msg)
	require.Equal(t, 7, line.Documents)
}

func TestLogsAreTextOnTerminal(t *testing.T) {
	env := newTestEnv()
	level := slog.LevelInfo
	env.Terminal = true
	log := env.NewLogger(&level)
	log.Debug("unheard")
	log.Info("started")
	log.With("collection", "jobs").WithGroup("tail").Warn("stopped", "segment", 3, "reason", "bad bytes")
	level = slog.LevelDebug
	log.Debug("heard now")
	require.Regexp(t, "^\r\x1b\\[K\\d\\d:\\d\\d:\\d\\d started\n"+
		"\r\x1b\\[K\\d\\d:\\d\\d:\\d\\d WARN stopped collection=jobs tail.segment=3 tail.reason=\"bad bytes\"\n"+
		"\r\x1b\\[K\\d\\d:\\d\\d:\\d\\d DEBUG heard now\n$", env.err.String())
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestOutputKeepsTheFirstError(t *testing.T) {
	out := NewOutput(brokenWriter{})
	out.Printf("%d\n", 1)
	require.NoError(t, out.Err())
	require.ErrorIs(t, out.Flush(), io.ErrShortWrite)
	out.Write([]byte("more"))
	require.EqualError(t, out.Flush(), "writing to standard output: short write")
}
