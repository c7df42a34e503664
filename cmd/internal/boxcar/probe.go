package boxcar

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/docservice/placement"
	"docstore/internal/canary"
	"docstore/internal/units"
	"docstore/queue/shard"
)

const (
	// probePoll is how often a server is asked for the canary.
	probePoll = 20 * time.Millisecond
	// maxCommandOutput limits the output of a failed command in the report.
	maxCommandOutput = 400
)

// probe holds the flags of the command.
type probe struct {
	operation
	shards     shardFlags
	collection string
	id         string
	command    string
	json       bool
}

func newProbe(env *cli.Env) *cobra.Command {
	var p probe
	command := &cobra.Command{
		Use:   "probe [--servers A,B,... | --etcd E] --collection NAME [--append COMMAND]",
		Short: "Send a canary document end to end, and locate faults",
		Long: `Probe checks each server separately: its state, and the canary, a document of a
collection that exists for this purpose. With --append it first writes a new
canary, so that the document passes updater, rsync, daemon and client, and
reports how long each server took to serve it. The shell runs COMMAND, which
gets the canary, a line of JSON, on standard input and must append it to the
queue.

If something is wrong, probe names the part at fault: "me" is this machine or
its settings (no server is reachable, a name or a certificate is wrong), "them"
is servers that do not answer, are draining, do not follow their queue or have
an older copy than others, "ingest" is the path before the servers. The exit
status is 0 if no fault is found, otherwise 1.

With --etcd the servers are those of a sharded collection. The servers of one
column have the shard of the canary and are probed for it; those of the others
must answer and be ready for all their shards.

Without --append probe reports the age of the last canary, by the clocks of the
machine that wrote it and of this one. A canary expires after a day. Lists and
counts leave it out.`,
		Example: `  boxcar probe --collection jobs
  boxcar probe --collection jobs --append 'cat >> /srv/input/jobs.log'    # that docstore-updater follows
  boxcar probe --servers 10.0.0.1:7070,10.0.0.2:7070 --collection jobs \
      --append 'ssh ingest docstore-updater append --quiet --queue /srv/queue/jobs'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return p.run(command.Context(), env)
		},
	}
	p.addFlags(command, 30*time.Second, "timeout of the canary; a server that sends nothing for a fifth of it counts as unreachable")
	flags := command.Flags()
	p.shards.addFlag(flags)
	command.PreRunE = func(*cobra.Command, []string) error {
		return errors.Join(p.check(), p.shards.check(flags, "servers"))
	}
	addCollection(command, &p.collection, "collection of the canary")
	flags.StringVar(&p.id, "id", docservice.CanaryPrefix, "id of the canary; lists and counts leave ids out that begin with "+docservice.CanaryPrefix)
	flags.StringVar(&p.command, "append", "", "shell command that appends its standard input to the queue; empty: write no canary")
	flags.BoolVar(&p.json, "json", false, "write the findings as JSON")
	return command
}

func (p *probe) run(ctx context.Context, env *cli.Env) error {
	servers, err := p.probed(ctx, env)
	if err != nil {
		return cli.Bare(fmt.Errorf("me: getting the list of servers failed: %w", err))
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
		nonce = "" // no new canary to wait for
	}
	f.Servers = make([]probeResult, len(servers))
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

// probed is a server to probe.
type probed struct {
	address string
	column  string // empty: the collection is not sharded
	// collection is the name under which the server has the shard of the canary. It is empty
	// if the server has other shards: then ready says whether it is ready for them.
	collection string
	ready      bool
}

// probed returns the servers.
func (p *probe) probed(ctx context.Context, env *cli.Env) (servers []probed, err error) {
	if p.shards.etcd == "" {
		addresses, err := p.addresses(ctx, env)
		for _, address := range addresses {
			servers = append(servers, probed{address: address, collection: p.collection})
		}
		return servers, err
	}
	store, err := p.shards.openStore(ctx, env, p.collection, p.timeout)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	states, err := store.States(ctx)
	if err != nil {
		return nil, err
	}
	m, _ := store.Map() // openStore has read it
	return shardServers(m, states, p.collection, p.id), nil
}

// shardServers returns the live servers of a sharded collection.
func shardServers(m *placement.Map, states []placement.ServerState, collection, id string) (servers []probed) {
	own := m.Layout.ShardString(id)
	for _, s := range states {
		one := probed{address: s.Address, column: s.Column, ready: true}
		if m.Shards[own].Column == s.Column {
			one.collection = shard.Name(collection, own)
		}
		for _, i := range m.Holds(s.Column) {
			if m.Shards[i].Column == s.Column { // not one that is moving here
				one.ready = one.ready && slices.ContainsFunc(s.Shards, func(held placement.ShardState) bool { return held.Shard == i && held.Ready })
			}
		}
		servers = append(servers, one)
	}
	return servers
}

// append runs the command and returns why it failed, "" if it succeeded.
func (p *probe) append(ctx context.Context, nonce string) string {
	sent := canary.New(p.id, time.Now())
	sent.Nonce = nonce
	line, err := sent.Encode()
	if err != nil {
		return err.Error()
	}
	command := exec.CommandContext(ctx, "sh", "-c", p.command)
	command.Stdin = bytes.NewReader(append(line, '\n'))
	command.WaitDelay = time.Second // for processes that it leaves running
	out, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	said := strings.Join(strings.Fields(string(out)), " ")
	return strings.TrimSpace(fmt.Sprintf("%v: %s", err, said[:min(len(said), maxCommandOutput)]))
}

// ask checks one server.
func (p *probe) ask(ctx context.Context, env *cli.Env, server probed, nonce string, began time.Time) (found probeResult) {
	found.Server, found.Column = server.address, server.column
	pool, err := p.newPool([]string{server.address}, &boxcarrpc.PoolOptions{
		Size: poolSize, Methods: docservice.IdempotentMethods(), Logger: env.Log,
	})
	if err != nil {
		found.Unreachable = err.Error()
		return found
	}
	defer func() { _ = pool.Close() }() // the calls have returned
	first, cancel := context.WithTimeout(ctx, p.timeout/5)
	defer cancel()
	if err := p.await(first, pool, hasSlot); err != nil {
		found.Draining = errors.Is(err, boxcarrpc.ErrDraining)
		found.Unreachable = reasonOf(err)
		if errors.Is(err, boxcarrpc.ErrNotBoxcar) {
			found.Unreachable += "; is it the address of docserviced --boxcar?"
		}
		return found
	}
	asked := time.Now()
	if _, err := pool.Call(first, boxcarrpc.MethodEcho, nil, nil); err != nil {
		found.Unreachable = err.Error()
		return found
	}
	found.EchoSeconds = time.Since(asked).Seconds()
	if server.collection == "" {
		found.otherShards, found.Ready = true, server.ready
		return found
	}
	client := docservice.NewClient(pool, server.collection)
	p.awaitCanary(ctx, client, nonce, began, &found)
	p.askStats(ctx, client, &found)
	return found
}

// outOfTime reports whether the deadline has passed; a call ends at the deadline slightly
// before ctx.
func outOfTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// awaitCanary fetches the canary, repeatedly if one with a nonce is expected.
func (p *probe) awaitCanary(ctx context.Context, client *docservice.Client, nonce string, began time.Time, found *probeResult) {
	for {
		asked := time.Now()
		document, err := client.Get(ctx, nil, p.id)
		took := time.Since(asked)
		if nonce != "" && err != nil && took < p.timeout/5 && outOfTime(ctx) {
			return // the timeout of the canary is not the server's fault
		}
		found.GetSeconds = took.Seconds()
		var is canary.Document
		found.GetError = ""
		switch {
		case errors.Is(err, docservice.ErrNotFound):
		case err != nil && !errors.Is(err, context.Canceled):
			found.GetError = err.Error()
		case err == nil:
			if d, ok := canary.Decode(document); ok {
				is, found.Sent = d, &d.Sent
			}
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

// askStats gets the statistics of the server. It may still do so after the timeout of the
// canary.
func (p *probe) askStats(ctx context.Context, client *docservice.Client, found *probeResult) {
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
	if p.json {
		return env.PrintJSON(f)
	}
	out := cli.NewOutput(env.Stdout)
	table := tabwriter.NewWriter(writerOf{out}, 0, 0, 2, ' ', 0)
	rows := []byte("server\techo\tget\tcanary\tbehind\tstate\n")
	for _, s := range f.Servers {
		rows = fmt.Appendf(rows, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Server, milliseconds(s.EchoSeconds), milliseconds(s.GetSeconds),
			s.canary(f.Wrote, time.Now()), units.FormatBytes(int64(s.LagBytes)), s.State)
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

// canary describes the canary on a server.
func (s *probeResult) canary(wrote bool, now time.Time) string {
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
