package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/httpclient"
	"docstore/cmd/internal/livepage"
)

// minTopInterval is the minimum interval at which a daemon updates its status.
const minTopInterval = time.Second

// Control sequences of terminals.
const (
	hideCursor = "\x1b[?25l\x1b[2J"
	showCursor = "\x1b[?25h"
	goHome     = "\x1b[H"
	clearRest  = "\x1b[K"
	clearBelow = "\x1b[J"
)

// top holds the flags of the command.
type top struct {
	addresses         []string
	interval, timeout time.Duration
	once              bool
	access            httpclient.Flags
	// size returns the size of the terminal; ok is false if there is none.
	size func() (width, height int, ok bool)
}

func newTop(env *cli.Env) *cobra.Command {
	t := top{size: terminalSize}
	command := &cobra.Command{
		Use:   "top --http A,B,...",
		Short: "Show the state of daemons in a terminal, continuously",
		Long: `Top reads the status of daemons over HTTP once per interval, and shows it until
Ctrl-C: requests and their latency, the lag of each collection, and the granted
slots with their clients. Several daemons take one line each. Rates are those
of the last interval, percentiles those of the last ten seconds.

A daemon that does not answer is marked, and asked again. With --once, or if
standard output is not a terminal, top shows one interval and exits, with
status 1 if a daemon did not answer.

Each daemon shows more on its own page: http://127.0.0.1:7071/ on its host.`,
		Example: `  boxcar top
  boxcar top --http be-1:7071,be-2:7071 --interval 5s
  boxcar top --http https://be-1:7071 --tls-ca ca.crt --token-file me.token --once`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return t.check() },
		RunE: func(command *cobra.Command, _ []string) error {
			return t.run(command.Context(), env)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&t.addresses, "http", []string{"127.0.0.1:7071"}, "the daemons' --http, as HOST:PORT or https://HOST:PORT, comma-separated")
	flags.DurationVar(&t.interval, "interval", time.Second, "update interval")
	flags.DurationVar(&t.timeout, "timeout", 5*time.Second, "timeout of a response")
	flags.BoolVar(&t.once, "once", false, "show one interval and exit")
	t.access.Add(flags)
	return command
}

// check reports all invalid flags.
func (t *top) check() error {
	var problems []error
	if len(t.addresses) == 0 {
		problems = append(problems, cli.Usagef("--http is empty; write HOST:PORT, or omit it for 127.0.0.1:7071"))
	}
	if t.interval < minTopInterval {
		problems = append(problems, cli.Usagef("--interval %s: must be at least %s", t.interval, minTopInterval))
	}
	if t.timeout <= 0 {
		problems = append(problems, cli.Usagef("--timeout %s: must be more than 0", t.timeout))
	}
	return errors.Join(append(problems, t.access.Check(t.addresses...))...)
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
	readings := make([]reading, len(t.addresses))
	for i, address := range t.addresses {
		readings[i].address = address
	}
	ticker := time.NewTicker(t.interval)
	defer ticker.Stop()
	if _, _, ok := t.size(); !ok || t.once {
		return t.showOnce(ctx, env, client, readings, ticker.C)
	}
	out := cli.NewOutput(env.Stdout)
	out.Printf(hideCursor)
	defer func() {
		out.Printf(showCursor)
		err = errors.Join(err, out.Flush())
	}()
	for {
		t.ask(ctx, client, readings)
		if ctx.Err() != nil {
			return nil
		}
		width, height, _ := t.size()
		out.Printf(goHome)
		lines := fit(frame(readings, env.Now()), width, height)
		for i, line := range lines {
			out.Printf("%s%s", line, clearRest)
			if i < len(lines)-1 { // a newline in the last line would scroll
				out.Printf("\r\n")
			}
		}
		out.Printf(clearBelow)
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showOnce shows one interval.
func (t *top) showOnce(ctx context.Context, env *cli.Env, client *httpclient.Client, readings []reading, interval <-chan time.Time) error {
	t.ask(ctx, client, readings)
	select {
	case <-interval:
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
