package docserviced

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/settings"
	"docstore/docservice/server"
)

// configPoll is how often the file of settings is checked.
const configPoll = time.Second

// reloadable are the settings that take effect at once. Other changes need a restart.
var reloadable = []string{"collection", cli.LogLevelFlag, "max-in-flight", "rate", "rate-burst", "client-rate", "client-rate-burst", graceFlag, "quiet"}

// reloader rereads the settings of a running daemon, after SIGHUP and when the file has
// changed.
type reloader struct {
	command *cobra.Command // as started
	env     *cli.Env
	path    string      // of the file; empty: none
	seen    os.FileInfo // the file when it was last read

	settings atomic.Pointer[[]cli.Setting] // effective
}

func newReloader(command *cobra.Command, env *cli.Env) (*reloader, error) {
	path, err := command.Flags().GetString(settings.Flag)
	if err != nil {
		return nil, err
	}
	r := &reloader{command: command, env: env, path: path}
	r.changed()
	r.set(settings.Of(command))
	return r, nil
}

// set makes settings the effective ones.
func (r *reloader) set(now []cli.Setting) { r.settings.Store(&now) }

// describe describes the effective settings and their sources.
func (r *reloader) describe() string {
	var text strings.Builder
	for _, s := range *r.settings.Load() {
		fmt.Fprintf(&text, "%s: %s # %s\n", s.Name, withoutPasswords(s.Value), s.Source)
	}
	return text.String()
}

// grace returns the time for requests in flight to finish.
func (r *reloader) grace() time.Duration {
	for _, s := range *r.settings.Load() {
		if s.Name == graceFlag {
			grace, _ := time.ParseDuration(s.Value) // it was checked
			return grace
		}
	}
	return 0
}

// passwords matches user:password@ in URLs.
var passwords = regexp.MustCompile(`://[^/@\s]*@`)

// withoutPasswords removes the passwords of URLs from a setting or the log, which contain no
// tokens and keys, only the names of their files.
func withoutPasswords(value string) string { return passwords.ReplaceAllString(value, "://...@") }

// start watches until stop is called, which waits for the goroutine.
func (r *reloader) start(d *server.Server) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(configPoll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				r.changed()
				r.reload(d)
			case <-tick.C:
				if r.changed() {
					r.reload(d)
				}
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		cancel()
		running.Wait()
	}
}

// changed reports whether the file differs from the last check. A missing file, while it is
// being replaced, does not count.
func (r *reloader) changed() bool {
	if r.path == "" {
		return false
	}
	now, err := os.Stat(r.path)
	if err != nil {
		return false
	}
	before := r.seen
	r.seen = now
	return before == nil || !os.SameFile(before, now) || before.Size() != now.Size() || !before.ModTime().Equal(now.ModTime())
}

// reload applies the current settings, or logs the error.
func (r *reloader) reload(d *server.Server) {
	o := newOptions()
	fresh := &cobra.Command{Use: r.command.Use}
	o.addFlags(fresh)
	err := settings.Again(r.command, fresh)
	if err == nil {
		err = d.Apply(&o.Options)
	}
	if err != nil {
		r.env.Log.Error("reloading the settings failed; correct them to retry", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	changes, waiting := r.adopt(settings.Of(fresh))
	r.env.Log.Info("settings were reloaded", "changed", changes)
	if len(waiting) > 0 {
		r.env.Log.Warn("changed settings need a restart", "settings", waiting)
	}
}

// adopt records the effective settings, and returns those that have changed and those that
// need a restart.
func (r *reloader) adopt(now []cli.Setting) (changes, waiting []string) {
	before := make(map[string]cli.Setting)
	for _, setting := range *r.settings.Load() {
		before[setting.Name] = setting
	}
	for i, setting := range now {
		old := before[setting.Name]
		if setting.Value == old.Value {
			continue
		}
		change := fmt.Sprintf("%s: %s (was %s)", setting.Name, setting.Value, old.Value)
		if !slices.Contains(reloadable, setting.Name) {
			waiting = append(waiting, change)
			now[i] = old // keep the old value
			continue
		}
		changes = append(changes, change)
		var level slog.Level
		if setting.Name == cli.LogLevelFlag && level.UnmarshalText([]byte(setting.Value)) == nil { // already checked
			r.env.Level.Set(level)
		}
	}
	r.set(now)
	return changes, waiting
}
