package boxcar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice/explain"
	"docstore/docservice/placement"
)

// explainer holds the flags of the command.
type explainer struct {
	operation
	shards     shardFlags
	collection string
	json       bool
}

func newExplain(env *cli.Env) *cobra.Command {
	var e explainer
	command := &cobra.Command{
		Use:   "explain [--servers A,B,... | --etcd E] --collection NAME ID",
		Short: "State why an id is served or not",
		Long: `Explain asks every server, with --etcd every server of the shard of the id, what
it knows about the id, and prints a table of them: the version of the program,
column, row and epoch of the placement, readiness, the end of the part of the
queue that it has read, the version of the document in its index, the manifest
that it serves of its target, a pin, the state in memcached, faults, and a
verdict. Below the table are the reasons, and the commands that help.

If a server does not find the id, one of them searches its queue for a delete or
a version that was not read yet: at most five seconds. Servers answer also while
they drain or are not ready. They show no content of documents, and only clients
that may use the collection get an answer.

The exit status is 0 if all servers that answer serve the newest version that
any of them knows, otherwise 1. Whether the source has a newer version, or one
was published, "docstore-updater explain" states.`,
		Example: `  boxcar explain --collection jobs 4711
  boxcar explain --servers 10.0.0.1:7070,10.0.0.2:7070 --collection jobs 4711
  boxcar explain --etcd 10.0.0.1:2379 --collection jobs 4711 --json | jq .verdict`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return e.run(command.Context(), env, args[0])
		},
	}
	e.addFlags(command, 10*time.Second, "timeout of a server")
	flags := command.Flags()
	e.shards.addFlag(flags)
	command.PreRunE = func(*cobra.Command, []string) error {
		return errors.Join(e.check(), e.shards.check(flags, "servers"))
	}
	addCollection(command, &e.collection, "collection of the id")
	flags.BoolVar(&e.json, "json", false, "write a JSON object")
	return command
}

func (e *explainer) run(ctx context.Context, env *cli.Env, id string) error {
	q := explain.Question{Collection: e.collection, ID: id}
	if err := e.findServers(ctx, env, &q); err != nil {
		return err
	}
	var asking sync.WaitGroup
	for i := range q.Servers {
		asking.Go(func() { e.askFacts(ctx, env, &q, &q.Servers[i], false) })
	}
	asking.Wait()
	if i := explain.Searches(q.Servers); i >= 0 {
		searched := explain.Server{Address: q.Servers[i].Address, Next: q.Servers[i].Next}
		if e.askFacts(ctx, env, &q, &searched, true); searched.Facts != nil {
			q.Servers[i] = searched
		}
	}
	q.Now = time.Now()
	report := explain.Explain(q)
	if err := e.print(env, &report); err != nil || report.IsServed() {
		return err
	}
	return cli.Bare(errors.New(summary(report.Finding)))
}

// findServers adds the servers of the id, and the placement.
func (e *explainer) findServers(ctx context.Context, env *cli.Env, q *explain.Question) (err error) {
	if e.shards.etcd == "" {
		addresses, err := e.addresses(ctx, env)
		if err != nil {
			return fmt.Errorf("getting the list of servers failed: %w", err)
		}
		for _, address := range addresses {
			q.Servers = append(q.Servers, explain.Server{Address: address})
		}
		return nil
	}
	store, err := e.shards.openStore(ctx, env, e.collection, e.timeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	states, err := store.States(ctx)
	if err != nil {
		return err
	}
	m, _ := store.Map() // openStore has read it
	addHolders(q, m, states)
	q.Placement.Etcd = e.shards.etcd
	return nil
}

// addHolders adds the placement of the shard of the id, and the live servers of its columns.
func addHolders(q *explain.Question, m *placement.Map, states []placement.ServerState) {
	shard := m.Layout.ShardString(q.ID)
	of := m.Shards[shard]
	q.Placement = &explain.Placement{Epoch: m.Epoch, Shard: shard, Column: of.Column, Next: of.Next}
	for _, s := range states {
		switch s.Column {
		case "":
		case of.Column:
			q.Servers = append(q.Servers, explain.Server{Address: s.Address})
		case of.Next:
			q.Servers = append(q.Servers, explain.Server{Address: s.Address, Next: true})
		}
	}
}

// askFacts asks one server.
func (e *explainer) askFacts(ctx context.Context, env *cli.Env, q *explain.Question, s *explain.Server, history bool) {
	request, err := json.Marshal(explain.Request{Collection: q.Collection, ID: []byte(q.ID), History: history})
	if err != nil {
		s.Error = err.Error()
		return
	}
	answer, err := e.exchange(ctx, env, s.Address, explain.Method, request)
	var facts explain.Facts
	if err == nil {
		err = json.Unmarshal(answer, &facts)
	}
	switch {
	case boxcarrpc.CodeOf(err) == boxcarrpc.CodeUnimplemented:
		s.Error = "its version does not have explain; see boxcar probe"
	case err != nil:
		s.Error = reasonOf(err)
	default:
		s.Facts = &facts
	}
}

// summary is a verdict in a line.
func summary(f explain.Finding) string { return string(f.Verdict) + ": " + f.Reason }

// print writes the report.
func (e *explainer) print(env *cli.Env, r *explain.Report) error {
	if e.json {
		return env.PrintJSON(r)
	}
	out := cli.NewOutput(env.Stdout)
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(cells []string) { _, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) } // writing to memory does not fail
	row(explain.Columns)
	for i := range r.Servers {
		row(r.Servers[i].Cells())
	}
	_ = table.Flush()
	if len(r.Servers) > 0 {
		out.Write(text.Bytes())
	}
	for _, s := range r.Servers {
		out.Printf("\n%s %s\n", s.Address, summary(s.Finding))
		if s.Facts != nil {
			for _, fault := range s.Facts.Faults {
				out.Printf("  fault: %s\n", fault)
			}
		}
		if s.Command != "" {
			out.Printf("  %s\n", s.Command)
		}
	}
	if r.IsServed() {
		out.Printf("\n%s\n", summary(r.Finding))
	}
	return out.Flush()
}
