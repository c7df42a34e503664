package docserviced

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/cmd/internal/cli"
	"docstore/internal/servertest"
)

// reloading is a daemon with a file of settings and its reloader.
type reloading struct {
	*process
	reloader *reloader
	env      *cli.Env
	log      *servertest.Buffer
	path     string
	base     string // the first lines of every file
}

func startReloading(t *testing.T, args ...string) *reloading {
	t.Helper()
	dir := t.TempDir()
	r := &reloading{log: &servertest.Buffer{}, path: filepath.Join(dir, "docserviced.yaml")}
	for _, name := range []string{"jobs", "resumes"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o777))
		servertest.Fill(t, filepath.Join(dir, name), "a", `{"id":"a","in":"`+name+`"}`)
	}
	r.base = fmt.Sprintf("data: %s\nboxcar: 127.0.0.1:0\nhttp: 127.0.0.1:0\n", filepath.Join(dir, "data"))
	r.write(t, "collection: jobs="+filepath.Join(dir, "jobs"))
	r.env = &cli.Env{Stdout: r.log, Stderr: r.log, Now: time.Now}
	r.env.Log = r.env.NewLogger(&r.env.Level)
	o := newOptions()
	command := &cobra.Command{Use: "serve"}
	o.addFlags(command)
	command.Flags().TextVar(&r.env.Level, cli.LogLevelFlag, &r.env.Level, "")
	require.NoError(t, command.ParseFlags(append(args, "--config", r.path)))
	require.NoError(t, command.PreRunE(command, nil))
	var err error
	r.reloader, err = newReloader(command, r.env)
	require.NoError(t, err)
	o.Settings = r.reloader.describe
	r.process, err = startProcess(r.env, *o)
	require.NoError(t, err)
	stop := r.reloader.start(r.Server)
	t.Cleanup(func() {
		stop()
		require.NoError(t, r.Stop(time.Second))
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// write replaces the file as editors do: written under another name and renamed.
func (r *reloading) write(t *testing.T, lines ...string) {
	t.Helper()
	next := r.path + ".next"
	require.NoError(t, os.WriteFile(next, []byte(r.base+strings.Join(lines, "\n")+"\n"), 0o600))
	require.NoError(t, os.Rename(next, r.path))
}

func (r *reloading) queueOf(name string) string { return filepath.Join(filepath.Dir(r.path), name) }

func (r *reloading) awaitLog(t *testing.T, text string) {
	t.Helper()
	servertest.Until(t.Context(), func() bool { return strings.Contains(r.log.String(), text) })
}

// The daemon notices a change of the file and applies the reloadable settings.
func TestReload(t *testing.T) {
	r := startReloading(t, "--grace", "3s")
	r.write(t, "collection:", "  - jobs="+r.queueOf("jobs"), "  - resumes="+r.queueOf("resumes"),
		"max-in-flight: 7", "client-rate: 1000", "log-level: DEBUG", "memory: 1GiB", "grace: 9s")
	r.awaitLog(t, "changed settings need a restart")

	resumes := r.Collection("resumes")
	require.NotNil(t, resumes)
	require.NoError(t, resumes.WaitReady(t.Context()))
	document, err := resumes.Get(nil, []byte("a"))
	require.NoError(t, err)
	require.Contains(t, string(document), "resumes")
	require.Equal(t, slog.LevelDebug, r.env.Level.Level())
	log := r.log.String()
	require.Contains(t, log, "memory: 1GiB (was auto)")
	require.Contains(t, log, "max-in-flight: 7 (was 65536)")
	require.Equal(t, 3*time.Second, r.reloader.grace(), "the command line takes precedence")
	settings := servertest.Get(r.HTTPHandler(), "/debug/settings").Body.String()
	require.Contains(t, settings, "memory: auto # default\n", "what holds")
	require.Regexp(t, `(?m)^max-in-flight: 7 # .*docserviced.yaml:\d+$`, settings)
}

// Invalid settings change nothing, and all errors are logged.
func TestReloadOfInvalidSettings(t *testing.T) {
	r := startReloading(t)
	for _, c := range []struct {
		lines []string
		want  []string
	}{
		{[]string{"collection: jobs=" + r.queueOf("jobs"), "memroy: 1GiB", "grace: 5", "rate: -1"},
			[]string{"did you mean memory?", "write a duration", "--rate: rate -1 per second"}},
		{[]string{"collection: resumes=" + r.queueOf("resumes")}, []string{"--collection jobs=", "restart the daemon"}},
		{[]string{"collection: [jobs=" + r.queueOf("jobs") + ", more=" + r.queueOf("none") + "]", "max-in-flight: 3"}, []string{"of collection more: ", "no such file"}},
	} {
		before := len(r.log.String())
		r.write(t, c.lines...)
		servertest.Until(t.Context(), func() bool { return strings.Contains(r.log.String()[before:], "reloading the settings failed") })
		for _, want := range c.want {
			require.Contains(t, r.log.String()[before:], want)
		}
	}
	require.Len(t, r.Collections(), 1)
	require.NotContains(t, servertest.Get(r.HTTPHandler(), "/debug/settings").Body.String(), "max-in-flight: 3")
	require.Error(t, r.Boxcar().SetAdmission(budget.Admission{MaxInFlight: -1}))
}

// SIGHUP reloads the settings even if no file has changed.
func TestHangup(t *testing.T) {
	r := startReloading(t)
	t.Setenv("DOCSERVICED_LOG_LEVEL", "WARN")
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(syscall.SIGHUP))
	servertest.Until(t.Context(), func() bool { return r.env.Level.Level() == slog.LevelWarn })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, cli.ExitOK, cli.Run(ctx, New, &cli.Env{Stdout: r.log, Stderr: r.log, Now: time.Now},
		[]string{"serve", "--collection", "jobs=" + r.queueOf("jobs"), "--data", t.TempDir(), "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0"}))
}

func TestSettingsShowNoPasswords(t *testing.T) {
	for value, want := range map[string]string{
		"https://user:secret@collector:4318":  "https://...@collector:4318",
		"etcd://root:secret@a:2379,b:2379/be": "etcd://...@a:2379,b:2379/be",
		"http://collector:4318/a@b":           "http://collector:4318/a@b",
		"/etc/docstore/tokens":                "/etc/docstore/tokens",
	} {
		require.Equal(t, want, withoutPasswords(value))
	}
}
