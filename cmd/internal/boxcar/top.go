package boxcar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/httpclient"
	"docstore/docservice/server/livepage"
)

// minTopInterval is the minimum interval at which a daemon updates its status.
const minTopInterval = time.Second

// top holds the flags of the command.
type top struct {
	addresses         []string
	shards            shardFlags
	collection        string
	interval, timeout time.Duration
	once, json        bool
	access            httpclient.Flags
	screen            screen
}

func newTop(env *cli.Env) *cobra.Command {
	t := top{screen: screen{size: terminalSize}}
	command := &cobra.Command{
		Use:   "top [--http A,B,... | --etcd E --collection NAME]",
		Short: "Show the state of daemons in a terminal, continuously",
		Long: `Top reads the status of daemons over HTTP once per interval, and shows it until
Ctrl-C: requests and their latency, the lag of each collection, and the granted
slots with their clients. Several daemons take one line each. Rates are those
of the last interval, percentiles those of the last ten seconds. "From source"
is the p99 of the canaries of docstore-updater, of the last five minutes.

With --etcd and --collection the daemons are those of a sharded collection, as
they are at the start; boxcar fleet shows its columns and moves.

A daemon that does not answer is marked, and asked again. With --once, or if
standard output is not a terminal, top shows one interval and exits, with
status 1 if a daemon did not answer. With --json it prints the status of each
daemon at once, an object per line, and exits likewise.

Each daemon shows more on its own page: http://127.0.0.1:7071/ on its host.`,
		Example: `  boxcar top
  boxcar top --http be-1:7071,be-2:7071 --interval 5s
  boxcar top --http https://be-1:7071 --tls-ca ca.crt --token-file me.token --once`,
		Args:    cobra.NoArgs,
		PreRunE: func(command *cobra.Command, _ []string) error { return t.check(command.Flags()) },
		RunE: func(command *cobra.Command, _ []string) error {
			return t.run(command.Context(), env)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&t.addresses, "http", []string{"127.0.0.1:7071"}, "the daemons' --http, as HOST:PORT or https://HOST:PORT, comma-separated")
	flags.DurationVar(&t.interval, "interval", time.Second, "update interval")
	flags.DurationVar(&t.timeout, "timeout", 5*time.Second, "timeout of a response")
	flags.BoolVar(&t.once, "once", false, "show one interval and exit")
	flags.BoolVar(&t.json, "json", false, "write the status of each daemon as a JSON object per line, and exit")
	t.access.Add(flags)
	t.shards.addFlag(flags)
	flags.StringVar(&t.collection, "collection", "", "collection of --etcd")
	return command
}

// check reports all invalid flags.
func (t *top) check(flags *pflag.FlagSet) error {
	problems := []error{t.shards.check(flags, "http")}
	if (t.shards.etcd == "") != (t.collection == "") {
		problems = append(problems, cli.Usagef("--etcd and --collection go together; give both"))
	}
	if len(t.addresses) == 0 {
		problems = append(problems, cli.Usagef("--http is empty; write HOST:PORT, or omit it for 127.0.0.1:7071"))
	}
	if t.interval < minTopInterval {
		problems = append(problems, cli.Usagef("--interval %s: must be at least %s", t.interval, minTopInterval))
	}
	if t.timeout <= 0 {
		problems = append(problems, cli.Usagef("--timeout %s: must be more than 0", t.timeout))
	}
	if t.shards.etcd == "" {
		problems = append(problems, t.access.Check(t.addresses...))
	}
	return errors.Join(problems...)
}

// pages returns the addresses of the daemons' HTTP listeners.
func (t *top) pages(ctx context.Context, env *cli.Env) ([]string, error) {
	if t.shards.etcd == "" {
		return t.addresses, nil
	}
	states, err := t.shards.states(ctx, env, t.collection, t.timeout)
	if err != nil {
		return nil, err
	}
	var pages []string
	for _, s := range states {
		if s.Page != "" {
			pages = append(pages, strings.TrimSuffix(strings.TrimPrefix(s.Page, "http://"), "/"))
		}
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("no server of collection %s has a status page in %s; see boxcar fleet", t.collection, t.shards.etcd)
	}
	return pages, t.access.Check(pages...)
}

// terminalSize returns the size of the terminal on standard output.
func terminalSize() (width, height int, ok bool) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	return width, height, err == nil
}

// reading holds the two latest statuses of a daemon.
type reading struct {
	address     string
	before, now *livepage.Status // nil: none yet
	err         error            // why the last request failed
}

func (t *top) run(ctx context.Context, env *cli.Env) (err error) {
	client, err := t.access.Open(t.timeout, env.Log)
	if err != nil {
		return err
	}
	defer client.Close()
	addresses, err := t.pages(ctx, env)
	if err != nil {
		return err
	}
	readings := make([]reading, len(addresses))
	for i, address := range addresses {
		readings[i].address = address
	}
	if t.json {
		t.ask(ctx, client, readings)
		return printReadings(env, readings)
	}
	if _, _, ok := t.screen.size(); !ok || t.once {
		return t.showOnce(ctx, env, client, readings)
	}
	return t.screen.run(ctx, env, t.interval, func() []string {
		t.ask(ctx, client, readings)
		return frame(readings, env.Now())
	})
}

// showOnce shows one interval.
func (t *top) showOnce(ctx context.Context, env *cli.Env, client *httpclient.Client, readings []reading) error {
	t.ask(ctx, client, readings)
	select {
	case <-time.After(t.interval):
	case <-ctx.Done():
		return ctx.Err()
	}
	t.ask(ctx, client, readings)
	out := cli.NewOutput(env.Stdout)
	for _, line := range frame(readings, env.Now()) {
		out.Printf("%s\n", line)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return firstSilent(readings)
}

// printReadings writes a line of JSON for each daemon.
func printReadings(env *cli.Env, readings []reading) error {
	out := cli.NewOutput(env.Stdout)
	for _, r := range readings {
		line := struct {
			Daemon string           `json:"daemon"`
			Error  string           `json:"error,omitempty"` // it does not answer
			Status *livepage.Status `json:"status,omitempty"`
		}{Daemon: r.address, Status: r.now}
		if r.err != nil {
			line.Error = r.err.Error()
		}
		out.PrintJSON(line)
	}
	return errors.Join(out.Flush(), firstSilent(readings))
}

// firstSilent returns an error if a daemon does not answer.
func firstSilent(readings []reading) error {
	for _, r := range readings {
		if r.err != nil {
			return fmt.Errorf("%s does not answer: %w; is docserviced running there, with --http?", r.address, r.err)
		}
	}
	return nil
}

// ask reads all statuses in parallel.
func (t *top) ask(ctx context.Context, client *httpclient.Client, readings []reading) {
	var asking sync.WaitGroup
	for i := range readings {
		asking.Go(func() { readings[i].ask(ctx, client) })
	}
	asking.Wait()
}

func (r *reading) ask(ctx context.Context, client *httpclient.Client) {
	body, err := client.Get(ctx, r.address, "/api/v1/status")
	status := &livepage.Status{}
	if err == nil {
		err = json.Unmarshal(body, status)
	}
	if r.err = err; err != nil {
		r.before, r.now = nil, nil
		return
	}
	switch {
	case r.now != nil && r.now.Time.Equal(status.Time): // the status has not been updated yet
	case r.now != nil && r.now.Started.Equal(status.Started):
		r.before, r.now = r.now, status
	default: // the daemon was restarted: its counters were reset
		r.before, r.now = nil, status
	}
}
