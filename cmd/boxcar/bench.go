package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/records"
	"docstore/docservice"
	"docstore/queue"
)

// Limits of what a bench may be asked for.
const (
	maxBenchRate     = 10_000_000 // calls a second
	maxBenchDuration = 24 * time.Hour
	maxBenchCallers  = 64 << 10
)

// benchFlags is what the flags of bench say.
type benchFlags struct {
	reach
	collection string
	ids        string
	size       cli.Size
	poolSize   int
	closed     bool
	json       bool
	quiet      bool
	load       load
}

func newBench(env *cli.Env) *cobra.Command {
	var b benchFlags
	command := &cobra.Command{
		Use:   "bench --servers A,B,...",
		Short: "Measure how fast servers answer under a load",
		Long: `Bench makes calls at a steady rate and reports how long they took. The moments when
calls are due are random, as of many independent users, and are settled beforehand
(open loop): a call takes from when it was due, even if it was sent late because
all callers were held up by slow answers. Three rows tell the times apart:

  latency   from when the call was due to its answer
  service   from when it was sent to its answer: what a closed loop would tell
  late      from when it was due to when it was sent. If this is not far below
            the latency, the rate is too high for the callers (give more), for
            this machine, or for the servers

With --closed each caller makes its next call when it has the answer to the last;
that finds the highest rate, but not the latency of users.

The calls are echoes of --size bytes, which every server answers by itself, or with
--collection and --ids fetch documents, the ids over and over again in their order.
Failed calls count in the times like others.`,
		Example: `  boxcar bench --rate 5000 --duration 30s
  boxcar bench --closed --callers 256 --servers 10.0.0.1:7070,10.0.0.2:7070 --json
  boxcar bench --rate 2000 --collection jobs --ids ids.txt`,
		Args: cobra.NoArgs,
		PreRunE: func(command *cobra.Command, _ []string) error {
			return b.check(command.Flags().Changed("rate"), command.Flags().Changed("size"))
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return b.run(command.Context(), env)
		},
	}
	flags := command.Flags()
	b.addFlags(flags, 5*time.Second, "longest to wait for an answer")
	flags.StringVar(&b.collection, "collection", "", "collection to fetch from, with --ids")
	flags.StringVar(&b.ids, "ids", "", "file of the ids of documents to fetch, a line each; - for standard input")
	b.size = 1 << 10
	flags.Var(&b.size, "size", "bytes of an echo")
	flags.Float64Var(&b.load.rate, "rate", 1000, "calls a second, of all callers together")
	flags.BoolVar(&b.closed, "closed", false, "call again when the answer has come, instead of at a rate")
	flags.DurationVar(&b.load.duration, "duration", 10*time.Second, "how long to measure")
	flags.DurationVar(&b.load.warmup, "warmup", time.Second, "how long to make the same calls before, unmeasured")
	flags.IntVar(&b.load.callers, "callers", 64, "most calls at once")
	flags.IntVar(&b.poolSize, "pool-size", 0, "slots of the pool; 0 for as many as callers. Calls beyond it are refused at once")
	flags.BoolVar(&b.json, "json", false, "write the report as JSON, times in nanoseconds")
	flags.BoolVar(&b.quiet, "quiet", false, "show no progress on a terminal")
	return command
}

// check completes the flags, or says all that is wrong with them.
func (b *benchFlags) check(rateGiven, sizeGiven bool) error {
	problems := []error{b.reach.check()}
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, cli.Usagef(format, args...))
		}
	}
	l := &b.load
	l.timeout = b.timeout
	if b.poolSize == 0 {
		b.poolSize = l.callers
	}
	refuse((b.ids == "") != (b.collection == ""), "--collection and --ids go together; give both")
	refuse(b.ids != "" && sizeGiven, "--size is of echoes, --ids of documents; give one of them")
	refuse(b.size > boxcarrpc.MaxRequestBytes, "--size %s: at most %s", &b.size, cli.FormatBytes(boxcarrpc.MaxRequestBytes))
	refuse(b.closed && rateGiven, "--closed has no --rate; give one of them")
	refuse(!(l.rate > 0 && l.rate <= maxBenchRate), "--rate %v: it must be over 0 and at most %s", l.rate, cli.FormatCount(maxBenchRate))
	refuse(l.duration <= 0 || l.duration > maxBenchDuration, "--duration %s: it must be over 0 and at most %s", l.duration, maxBenchDuration)
	refuse(l.warmup < 0 || l.warmup > maxBenchDuration, "--warmup %s: it must be from 0 to %s", l.warmup, maxBenchDuration)
	refuse(l.timeout > maxBenchDuration, "--timeout %s: it must be at most %s", l.timeout, maxBenchDuration)
	refuse(l.callers < 1 || l.callers > maxBenchCallers, "--callers %d: it must be from 1 to %d", l.callers, maxBenchCallers)
	refuse(b.poolSize != l.callers && (b.poolSize < 1 || b.poolSize > maxBenchCallers), "--pool-size %d: it must be from 1 to %d", b.poolSize, maxBenchCallers)
	if b.closed {
		l.rate = 0
	}
	return errors.Join(problems...)
}

func (b *benchFlags) run(ctx context.Context, env *cli.Env) (err error) {
	ids, err := b.readIDs(env)
	if err != nil {
		return err
	}
	pool, err := b.newPool(b.servers, &boxcarrpc.PoolOptions{
		Size:    b.poolSize,
		Methods: docservice.IdempotentMethods(),
		Logger:  env.Log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	if err := b.waitReady(ctx, pool); err != nil {
		return err
	}
	call, stop := b.target(pool, ids), func() {}
	if env.Terminal && !b.quiet {
		call, stop = showCalls(env, b.load.warmup+b.load.duration, call)
	}
	r := b.load.run(ctx, call)
	stop()
	r.Slots, r.Servers, r.What = pool.Stats().Slots, pool.Stats().Known, b.what(ids)
	if r.Calls == 0 {
		return errors.New("no call was due within the time; give a higher --rate or a longer --duration")
	}
	out := cli.NewOutput(env.Stdout)
	r.print(out, b.json)
	return out.Flush()
}

// waitReady waits until a server gives a slot. The warm-up waits for the others.
func (b *benchFlags) waitReady(ctx context.Context, pool *boxcarrpc.Pool) error {
	if err := b.await(ctx, pool, hasSlot); err != nil {
		return b.explain(b.servers, err)
	}
	return nil
}

// readIDs reads the ids to fetch; none if echoes are measured.
func (b *benchFlags) readIDs(env *cli.Env) (ids []string, err error) {
	var in io.Reader
	name := b.ids
	switch name {
	case "":
		return nil, nil
	case "-":
		in, name = env.Stdin, "standard input"
	default:
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	for lines := records.NewLines(in, queue.MaxIDBytes, 0, 0); ; {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF) && len(ids) == 0:
			return nil, fmt.Errorf("%s has no ids; give an id a line", name)
		case errors.Is(err, io.EOF):
			return ids, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		case line.Problem != nil:
			return nil, cli.Bare(fmt.Errorf("%s:%d: an id has at most %d bytes; give an id a line", name, line.Number, queue.MaxIDBytes))
		}
		ids = append(ids, string(line.Text))
	}
}

// what is what is measured, for the report.
func (b *benchFlags) what(ids []string) string {
	if ids == nil {
		return "echoes of " + cli.FormatBytes(int64(b.size))
	}
	return fmt.Sprintf("%s of collection %s", cli.FormatCountOf(int64(len(ids)), "id", "ids"), b.collection)
}

// target makes the calls that are measured.
func (b *benchFlags) target(pool *boxcarrpc.Pool, ids []string) target {
	if ids == nil {
		request := make([]byte, b.size)
		return func(ctx context.Context, dst []byte) ([]byte, error) {
			dst, err := pool.Call(ctx, boxcarrpc.MethodEcho, request, dst)
			if err == nil && !bytes.Equal(dst, request) {
				err = errors.New("the echo is not what was sent")
			}
			return dst, err
		}
	}
	client := docservice.NewClient(pool, b.collection)
	var next atomic.Uint64
	return func(ctx context.Context, dst []byte) ([]byte, error) {
		return client.Get(ctx, dst, ids[(next.Add(1)-1)%uint64(len(ids))])
	}
}
