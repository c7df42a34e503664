package boxcar

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
	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/ingest/records"
	"docstore/internal/eof"
	"docstore/internal/units"
	"docstore/queue"
)

// Limits of the flags.
const (
	maxBenchRate     = 10_000_000 // calls per second
	maxBenchDuration = 24 * time.Hour
	maxBenchCallers  = 64 << 10
)

// benchFlags holds the flags of bench.
type benchFlags struct {
	serverFlags
	shards     shardFlags
	collection string
	ids        string
	size       units.Size
	poolSize   int
	closed     bool
	json       bool
	quiet      bool
	batch      bool
	load       load
}

func newBench(env *cli.Env) *cobra.Command {
	var b benchFlags
	command := &cobra.Command{
		Use:   "bench [--servers A,B,... | --etcd E]",
		Short: "Measure the latency of servers under load",
		Long: `Bench makes calls at a steady rate and reports their latency. The times at
which calls are due are random, as of many independent users, and fixed in
advance (open loop): the latency counts from the due time, even if the call was
sent late because all callers were waiting for slow responses. The report has
three rows:

  latency   from the due time to the response
  service   from sending to the response, as measured by a closed loop
  late      from the due time to sending. If this is close to the latency, the
            rate is too high for the callers (use more), for this machine, or
            for the servers

With --closed each caller sends its next call when it has received the response
to the last. This finds the highest rate, but not the latency that users see.

Calls are echoes of --size bytes, which every server answers, or with
--collection and --ids fetches of documents, in the order of the file,
repeatedly. The times include failed calls. With --etcd the documents are those
of a sharded collection, and each column has a pool of --pool-size slots.`,
		Example: `  boxcar bench --rate 5000 --duration 30s
  boxcar bench --closed --callers 256 --servers 10.0.0.1:7070,10.0.0.2:7070 --json
  boxcar bench --rate 2000 --collection jobs --ids ids.txt
  boxcar bench --etcd 10.0.0.1:2379 --collection jobs --ids ids.txt`,
		Args: cobra.NoArgs,
		PreRunE: func(command *cobra.Command, _ []string) error {
			return b.check(command.Flags())
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return b.run(command.Context(), env)
		},
	}
	flags := command.Flags()
	b.addFlags(flags, 5*time.Second, "timeout of a call")
	b.addZoneFlag(flags)
	b.shards.addFlag(flags)
	flags.StringVar(&b.collection, "collection", "", "collection to fetch from, with --ids")
	flags.StringVar(&b.ids, "ids", "", "file with the ids of documents to fetch, one per line; - for standard input")
	b.size = 1 << 10
	flags.Var(&b.size, "size", "size of an echo")
	flags.Float64Var(&b.load.rate, "rate", 1000, "calls per second of all callers together")
	flags.BoolVar(&b.closed, "closed", false, "send each call after the previous response, instead of at a rate")
	flags.DurationVar(&b.load.duration, "duration", 10*time.Second, "duration of the measurement")
	flags.DurationVar(&b.load.warmup, "warmup", time.Second, "duration of unmeasured calls before")
	flags.IntVar(&b.load.callers, "callers", 64, "maximum concurrent calls")
	flags.IntVar(&b.poolSize, "pool-size", 0, "slots of the pool; 0: as many as callers; calls beyond it fail at once")
	flags.BoolVar(&b.batch, "batch", false, "give the calls the priority of batch: overloaded servers refuse them first")
	flags.BoolVar(&b.json, "json", false, "write the report as JSON, times in nanoseconds")
	flags.BoolVar(&b.quiet, "quiet", false, "do not show progress on a terminal")
	return command
}

// check completes the flags, and reports all invalid ones.
func (b *benchFlags) check(flags *pflag.FlagSet) error {
	problems := []error{b.serverFlags.check(), b.shards.check(flags, "servers")}
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
	refuse(b.shards.etcd != "" && b.ids == "", "--etcd needs --collection and --ids: echoes have no shard")
	refuse(b.ids != "" && flags.Changed("size"), "--size applies to echoes, --ids to documents; give one of them")
	refuse(b.size > boxcarrpc.MaxRequestBytes, "--size %s: at most %s", &b.size, units.FormatBytes(boxcarrpc.MaxRequestBytes))
	refuse(b.closed && flags.Changed("rate"), "--closed excludes --rate; give one of them")
	refuse(!(l.rate > 0 && l.rate <= maxBenchRate), "--rate %v: must be more than 0 and at most %s", l.rate, units.FormatCount(maxBenchRate))
	refuse(l.duration <= 0 || l.duration > maxBenchDuration, "--duration %s: must be more than 0 and at most %s", l.duration, maxBenchDuration)
	refuse(l.warmup < 0 || l.warmup > maxBenchDuration, "--warmup %s: must be between 0 and %s", l.warmup, maxBenchDuration)
	refuse(l.timeout > maxBenchDuration, "--timeout %s: must be at most %s", l.timeout, maxBenchDuration)
	refuse(l.callers < 1 || l.callers > maxBenchCallers, "--callers %d: must be between 1 and %d", l.callers, maxBenchCallers)
	refuse(b.poolSize != l.callers && (b.poolSize < 1 || b.poolSize > maxBenchCallers), "--pool-size %d: must be between 1 and %d", b.poolSize, maxBenchCallers)
	if b.closed {
		l.rate = 0
	}
	return errors.Join(problems...)
}

func (b *benchFlags) run(ctx context.Context, env *cli.Env) (err error) {
	if b.batch {
		ctx = boxcarrpc.WithBatch(ctx)
	}
	ids, err := b.readIDs(env)
	if err != nil {
		return err
	}
	t, err := b.connect(ctx, env, ids)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	call, stop := t.call, func() {}
	if env.Terminal && !b.quiet {
		call, stop = showCalls(env, b.load.warmup+b.load.duration, call)
	}
	r := b.load.run(ctx, call)
	stop()
	r.Slots, r.Servers = t.size()
	r.What = b.what(ids)
	if r.Calls == 0 {
		return errors.New("no call was due within the time; give a higher --rate or a longer --duration")
	}
	out := cli.NewOutput(env.Stdout)
	r.print(out, b.json)
	return out.Flush()
}

// connected are the servers of a bench.
type connected struct {
	call  target
	size  func() (slots, servers int)
	close func() error
}

// connect returns the servers once one of them has granted a slot. The others are leased
// during the warm-up.
func (b *benchFlags) connect(ctx context.Context, env *cli.Env, ids []string) (c connected, err error) {
	if b.shards.etcd != "" {
		client, err := b.shards.open(ctx, env, &b.serverFlags, b.collection, b.poolSize)
		if err != nil {
			return c, err
		}
		return connected{gets(client, ids), func() (slots, servers int) { return sizeOf(client.PoolStats()...) }, client.Close}, nil
	}
	pool, err := b.newPool(b.servers, &boxcarrpc.PoolOptions{
		Size:    b.poolSize,
		Methods: docservice.IdempotentMethods(),
		Logger:  env.Log,
	})
	if err != nil {
		return c, err
	}
	if err := b.await(ctx, pool, hasSlot); err != nil {
		return c, errors.Join(b.explain(b.servers, err), pool.Close())
	}
	return connected{b.target(pool, ids), func() (slots, servers int) { return sizeOf(pool.Stats()) }, pool.Close}, nil
}

// sizeOf returns the sums of pools.
func sizeOf(pools ...boxcarrpc.PoolStats) (slots, servers int) {
	for _, stats := range pools {
		slots, servers = slots+stats.Slots, servers+stats.Known
	}
	return slots, servers
}

// readIDs reads the ids to fetch; it returns none if echoes are measured.
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
		case eof.Is(err) && len(ids) == 0:
			return nil, fmt.Errorf("%s has no ids; write one id per line", name)
		case eof.Is(err):
			return ids, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		case line.Problem != nil:
			return nil, cli.Bare(fmt.Errorf("%s:%d: an id has at most %d bytes; write one id per line", name, line.Number, queue.MaxIDBytes))
		}
		ids = append(ids, string(line.Text))
	}
}

// what describes the calls, for the report.
func (b *benchFlags) what(ids []string) string {
	if ids == nil {
		return "echoes of " + units.FormatBytes(int64(b.size))
	}
	return fmt.Sprintf("%s of collection %s", units.FormatCountOf(int64(len(ids)), "id", "ids"), b.collection)
}

// target returns the function that makes one call.
func (b *benchFlags) target(pool *boxcarrpc.Pool, ids []string) target {
	if ids == nil {
		request := make([]byte, b.size)
		return func(ctx context.Context, dst []byte) ([]byte, error) {
			dst, err := pool.Call(ctx, boxcarrpc.MethodEcho, request, dst)
			if err == nil && !bytes.Equal(dst, request) {
				err = errors.New("the echo differs from the request")
			}
			return dst, err
		}
	}
	return gets(docservice.NewClient(pool, b.collection), ids)
}

// gets returns the function that fetches the next document.
func gets(client documents, ids []string) target {
	var next atomic.Uint64
	return func(ctx context.Context, dst []byte) ([]byte, error) {
		return client.Get(ctx, dst, ids[(next.Add(1)-1)%uint64(len(ids))])
	}
}
