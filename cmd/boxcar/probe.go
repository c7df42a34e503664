package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
)

const (
	// probePoll is how often a server is asked whether it has the canary.
	probePoll = 20 * time.Millisecond
	// canaryLife is when a canary expires, so that none stays for ever.
	canaryLife = 24 * time.Hour
	// maxCommandOutput is how much of what a failed command has printed is told.
	maxCommandOutput = 400
)

// probe is the flags of the command.
type probe struct {
	operation
	collection string
	id         string
	command    string
	json       bool
}

func newProbe(env *cli.Env) *cobra.Command {
	var p probe
	command := &cobra.Command{
		Use:   "probe --servers A,B,... --collection NAME [--append COMMAND]",
		Short: "Send a canary document the whole way, and say whose fault it is",
		Long: `Probe asks each server by itself how it is, and for the canary: a document of a
collection that is there for this. With --append it writes a new one first, so that
the document goes the whole way, by updater, rsync, daemon and client, and tells how
long each server took to serve it. COMMAND is run by the shell, and gets the canary
on its standard input, a line of JSON, to have it appended to the queue.

It then says whose fault it is if something is wrong: "me" is this machine or what
it was told (no server can be reached, a name or a certificate is wrong), "them" is
servers that do not answer, are draining, do not follow their queue or have an older
copy than others, "ingest" is the way before them. The exit status is 0 if all is well, else 1.

Without --append it tells how old the last canary is, by the clocks of the machine
that wrote it and of this one. A canary expires after a day.`,
		Example: `  boxcar probe --collection jobs
  boxcar probe --collection jobs --append 'cat >> /srv/input/jobs.log'    # that docstore-updater follows
  boxcar probe --servers 10.0.0.1:7070,10.0.0.2:7070 --collection jobs \
      --append 'ssh ingest docstore-updater append --quiet --queue /srv/queue/jobs'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return p.run(command.Context(), env)
		},
	}
	p.addFlags(command, 30*time.Second, "longest to wait for the canary; a server that says nothing for a fifth of it does not answer")
	flags := command.Flags()
	addCollection(command, &p.collection, "collection that the canary is in")
	flags.StringVar(&p.id, "id", "docstore-canary", "id of the canary")
	flags.StringVar(&p.command, "append", "", "shell command that appends the line on its standard input to the queue; empty: none is written")
	flags.BoolVar(&p.json, "json", false, "write the findings as JSON")
	return command
}

// canary is what a probe writes and looks for.
type canary struct {
	ID      string    `json:"id"`
	Nonce   string    `json:"nonce"`
	Sent    time.Time `json:"sent"`
	Expires time.Time `json:"_expires"`
}

func (p *probe) run(ctx context.Context, env *cli.Env) error {
	servers, err := p.addresses(ctx, env)
	if err != nil {
		return cli.Bare(fmt.Errorf("me: the list of servers cannot be had: %w", err))
	}
	f := findings{Wrote: p.command != ""}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	began := time.Now()
	nonce := ""
	if p.command != "" {
		nonce = rand.Text()
		f.AppendError = p.append(ctx, nonce)
		f.AppendSeconds = time.Since(began).Seconds()
	}
	if f.AppendError != "" {
		nonce = "" // there is nothing to wait for
	}
	f.Servers = make([]probed, len(servers))
	var asking sync.WaitGroup
	for i, server := range servers {
		asking.Go(func() { f.Servers[i] = p.ask(ctx, env, server, nonce, began) })
	}
	asking.Wait()
	f.conclude()
	if err := p.print(env, &f); err != nil {
		return err
	}
	if f.Whose != "" {
		return cli.Bare(fmt.Errorf("%s: %s", f.Whose, f.Verdict))
	}
	return nil
}

// append has a canary appended, and returns why that failed.
func (p *probe) append(ctx context.Context, nonce string) string {
	now := time.Now()
	line, err := json.Marshal(canary{ID: p.id, Nonce: nonce, Sent: now, Expires: now.Add(canaryLife).UTC().Truncate(time.Second)})
	if err != nil {
		return err.Error()
	}
	command := exec.CommandContext(ctx, "sh", "-c", p.command)
	command.Stdin = bytes.NewReader(append(line, '\n'))
	command.WaitDelay = time.Second // for what it leaves running
	out, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	said := strings.Join(strings.Fields(string(out)), " ")
	return strings.TrimSpace(fmt.Sprintf("%v: %s", err, said[:min(len(said), maxCommandOutput)]))
}

// ask asks one server everything.
func (p *probe) ask(ctx context.Context, env *cli.Env, server, nonce string, began time.Time) (found probed) {
	found.Server = server
	pool, err := p.newPool([]string{server}, &boxcarrpc.PoolOptions{
		Size: poolSize, Methods: docservice.IdempotentMethods(), Logger: env.Log,
	})
	if err != nil {
		found.Unreachable = err.Error()
		return found
	}
	defer func() { _ = pool.Close() }() // what it has was had
	first, cancel := context.WithTimeout(ctx, p.timeout/5)
	defer cancel()
	if err := p.await(first, pool, hasSlot); err != nil {
		found.Draining = errors.Is(err, boxcarrpc.ErrDraining)
		found.Unreachable = reasonOf(err)
		if errors.Is(err, boxcarrpc.ErrNotBoxcar) {
			found.Unreachable += "; is it the address that is docserviced's --boxcar?"
		}
		return found
	}
	asked := time.Now()
	if _, err := pool.Call(first, boxcarrpc.MethodEcho, nil, nil); err != nil {
		found.Unreachable = err.Error()
		return found
	}
	found.EchoSeconds = time.Since(asked).Seconds()
	client := docservice.NewClient(pool, p.collection)
	p.awaitCanary(ctx, client, nonce, began, &found)
	p.askStats(ctx, client, &found)
	return found
}

// outOfTime tells whether the deadline has passed; a call ends there before ctx does.
func outOfTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// awaitCanary fetches the canary, again and again if one with a nonce is to come.
func (p *probe) awaitCanary(ctx context.Context, client *docservice.Client, nonce string, began time.Time, found *probed) {
	for {
		asked := time.Now()
		document, err := client.Get(ctx, nil, p.id)
		took := time.Since(asked)
		if nonce != "" && err != nil && took < p.timeout/5 && outOfTime(ctx) {
			return // that the wait for the canary ended while this was under way is not the server's fault
		}
		found.GetSeconds = took.Seconds()
		var is canary
		found.GetError = ""
		switch {
		case errors.Is(err, docservice.ErrNotFound):
		case err != nil && !errors.Is(err, context.Canceled):
			found.GetError = err.Error()
		case err == nil && json.Unmarshal(document, &is) == nil:
			found.Sent = &is.Sent
		}
		if nonce == "" {
			return
		}
		if is.Nonce == nonce {
			found.FreshSeconds = time.Since(began).Seconds()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(probePoll):
		}
	}
}

// askStats asks how the server follows its queue. When the time is up it still may
// answer that.
func (p *probe) askStats(ctx context.Context, client *docservice.Client, found *probed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout/5)
	defer cancel()
	stats, err := client.Stats(ctx)
	if err != nil {
		found.StatsError = err.Error()
		return
	}
	found.Ready = stats.GetReady()
	found.LagBytes = stats.GetLagBytes()
	at := stats.GetPosition()
	found.Position = position{at.GetSegment(), at.GetBlock(), at.GetIndex()}
	for _, fault := range stats.GetFaults() {
		if fault.GetStopsTail() {
			found.Stopped = fault.GetPath() + ": " + fault.GetReason()
		}
	}
}

// print writes the findings.
func (p *probe) print(env *cli.Env, f *findings) error {
	out := cli.NewOutput(env.Stdout)
	if p.json {
		text, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			return err
		}
		out.Write(append(text, '\n'))
		return out.Flush()
	}
	table := tabwriter.NewWriter(writerOf{out}, 0, 0, 2, ' ', 0)
	rows := []byte("server\techo\tget\tcanary\tbehind\tstate\n")
	for _, s := range f.Servers {
		rows = fmt.Appendf(rows, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Server, milliseconds(s.EchoSeconds), milliseconds(s.GetSeconds),
			s.canary(f.Wrote, time.Now()), cli.FormatBytes(int64(s.LagBytes)), s.State)
	}
	_, err := table.Write(rows)
	if err := errors.Join(err, table.Flush()); err != nil {
		return err
	}
	if f.Whose == "" {
		out.Printf("well: %s\n", f.Verdict)
	}
	return out.Flush()
}

// canary is what is known of the canary on a server.
func (s *probed) canary(wrote bool, now time.Time) string {
	switch {
	case s.FreshSeconds > 0:
		return fmt.Sprintf("served after %.2f s", s.FreshSeconds)
	case wrote || s.Sent == nil:
		return "-"
	}
	return now.Sub(*s.Sent).Round(time.Second).String() + " old"
}

func milliseconds(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", seconds*1e3)
}
