package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
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
		{"good --unknown", ExitUsage, "tool: unknown flag --unknown; see --help for the list; see tool good --help\n"},
		{"good a b", ExitUsage, `tool: too many or too few arguments, "a" "b"; write tool good [ID]; see tool good --help` + "\n"},
		{"nonsense", ExitUsage, "tool: unknown command nonsense; see --help for the list; see tool --help\n"},
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

func TestDescribeBuild(t *testing.T) {
	at := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}, {Key: "vcs.time", Value: at.Format(time.RFC3339)},
	}}
	require.Equal(t, Build{"(devel)", "0123456789ab with changes", at}, describeBuild(info))
	require.Equal(t, Build{"v1.2.3", "unknown", time.Unix(0, 0).UTC()}, describeBuild(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}))
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

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "4096B": 4096, "64MiB": 64 << 20, "64mib": 64 << 20, "64 MB": 64e6, "64M": 64 << 20,
		"1.5G": 3 << 29, "2TB": 2e12, "8k": 8 << 10,
	} {
		var s Size
		require.NoError(t, s.Set(text), text)
		require.Equal(t, want, int64(s), text)
	}
	for _, text := range []string{"", "MiB", "-1", "1e30T", "much", "NaN", "1 2"} {
		var s Size
		require.Error(t, s.Set(text), text)
	}
}

func TestSizeInHelp(t *testing.T) {
	s := Size(64 << 20)
	require.Equal(t, "64MiB", s.String())
}

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB", 5 << 50: "5120 TiB"} {
		require.Equal(t, want, FormatBytes(n))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		require.Equal(t, want, FormatCount(n))
	}
	for n, want := range map[int64]string{0: "0 entries", 1: "1 entry", 2: "2 entries", 1000: "1,000 entries"} {
		require.Equal(t, want, FormatCountOf(n, "entry", "entries"))
	}
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

// TestSizeIsExact: a size is not rounded in a message.
func TestSizeIsExact(t *testing.T) {
	for text, want := range map[string]string{"32KiB": "32KiB", "32767": "32767", "1.5G": "1.5GiB", "64MB": "64000000", "0": "0B", "1023": "1023B"} {
		var s Size
		require.NoError(t, s.Set(text))
		require.Equal(t, want, s.String())
	}
}
