package main

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice"
)

// Default addresses.
const (
	defaultBoxcar = "127.0.0.1:7070"
	defaultHTTP   = "127.0.0.1:7071"
)

const (
	defaultMemory = 512 << 20
	minMemory     = 16 << 20
)

func newServe(env *cli.Env) *cobra.Command {
	o := newOptions()
	command := &cobra.Command{
		Use:   "serve --collection NAME=QUEUEDIR [--collection ...] --data DIR",
		Short: "Index queues and serve their documents",
		Long: `Serve follows each queue into an index below --data and answers for its documents
over Boxcar. It answers at once with what is indexed already, and is ready when
every queue has been read to its end. Damaged files are reported, and served
around, until good copies take their place. In a copy of a queue a damaged
segment is renamed to .bad, once, so that rsync brings it again. The indexes are
verified continuously at --scrub-rate, and a damaged one is rebuilt from its queue
while its readable part is served. Another queue that replaces a served one is indexed
in parallel, and served when it has been read to its end.

HTTP shows how it is doing:

  /                             a page that shows it, kept current
  /api/v1/status                the same as JSON; docs/status.md has the fields
  /healthz                      200 while the process runs
  /readyz                       200 once every queue has been read to its end, else
                                503; reasons and faults as JSON. ?draining=503 also
                                answers 503 while the daemon is drained
  /metrics                      for Prometheus
  /documents/COLLECTION/ID      the document; 404 not found, 503 unavailable here
  /collections/COLLECTION/ids   ids in order, ?prefix= after= limit=, a page at a time
  .../count, .../export         how many there are; their documents as NDJSON
  /debug/pprof/                 profiles
  /debug/log, /debug/settings   what was logged last; the settings and their sources

Other hosts are served over TLS, or in plain text with --insecure. Clients prove who
they are by a certificate of --tls-client-ca or a token of --token-file. HTTP on an
address that other hosts reach needs both, or --http-open, and answers everybody for
/healthz and /readyz alone; documents and /debug are not there unless --http-lookup
and --http-debug ask for them. docs/security.md tells how to make, and how to
exchange, certificates and tokens. --max-in-flight, --rate and --client-rate bound what
clients get; what is refused they ask of other servers: docs/operating-boxcar.md.

With --memcached the daemon puts documents into Memcached as it reads the queues,
serves them from there, and reads the segments where Memcached has no answer or is
down. That is for queues on slow disks: segments in the page cache are faster.

With --grpc the same service is served over gRPC, with health and reflection, to
clients in languages that have no Boxcar client: docs/grpc.md.

Flags may also come from the environment, --data as DOCSERVICED_DATA, and from a YAML
file with flags as keys, in that order: docs/configuration.md. docserviced config
prints what comes of it.

SIGHUP, or a change of the file of --config, has the file and the environment read
again: collections that are new there are served, --log-level, --grace and the limits
of requests hold at once, and the log says what else has changed
and takes a restart. If anything is wrong, nothing changes. Certificates and tokens
are read again by themselves.

SIGINT and SIGTERM end it: /readyz turns 503, requests under way are finished,
for --grace at most, and the exit status is 0.`,
		Example: `  docserviced serve --collection jobs=/srv/queue/jobs --data /srv/index
  docserviced serve --collection jobs=/srv/queue/jobs --collection resumes=/srv/queue/resumes \
      --data /srv/index --memory 4GiB \
      --boxcar :7070 --tls-cert be-1.crt --tls-key be-1.key --tls-client-ca clients.crt`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			r, err := newReloader(command, env)
			if err != nil {
				return err
			}
			return serve(command.Context(), env, *o, r)
		},
	}
	o.addFlags(command)
	return command
}

// newOptions are those of serve before any flag has changed them.
func newOptions() *daemonOptions {
	return &daemonOptions{memory: defaultMemory, scrubRate: docservice.DefaultScrubBytesPerSecond}
}

func (o *daemonOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringArrayVar(&o.collectionFlags, "collection", nil, "a collection to serve and the directory of its queue, as NAME=QUEUEDIR; may be repeated")
	flags.StringVar(&o.dataDir, "data", "", "directory of the indexes; one daemon only")
	flags.StringVar(&o.boxcar, "boxcar", defaultBoxcar, "address to serve Boxcar on")
	o.http.addFlags(flags)
	flags.Var(&o.memory, "memory", "memory of all collections together: 11/16 for memtables and Bloom filters, 1/16 for dictionaries, a quarter for "+
		"requests being received; what is mapped belongs to the kernel, and Go's own needs come on top")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "how long requests under way may take when the daemon is told to end")
	flags.BoolVar(&o.quarantine, "quarantine", true, "rename a damaged segment to .bad, so that rsync brings it again; false only reports it")
	flags.DurationVar(&o.scrubInterval, "scrub-interval", docservice.DefaultScrubInterval,
		"pause between two verifications of an index; 0: never verify")
	flags.Var(&o.scrubRate, "scrub-rate", "most bytes of all indexes together that are verified in a second")
	flags.DurationVar(&o.maxStaleness, "max-staleness", 0,
		"not ready while the head file of the queue is older than this; 0: no limit")
	flags.StringSliceVar(&o.memcached, "memcached", nil, "memcached servers to load and to serve from, as host:port with commas between them; daemons may share them")
	flags.BoolVar(&o.quiet, "quiet", false, "show no progress while a queue is first indexed")
	addGRPCFlags(command, o)
	o.security.addFlags(flags)
	o.limits.addFlags(flags)
	o.tracing.addFlags(flags)
	o.entering.addFlags(flags)
	command.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	cli.WithConfig(command, configPrefix)
}

// check completes the options, or says all that is impossible in them.
func (o *daemonOptions) check() error {
	var problems []error
	if o.memory < minMemory {
		problems = append(problems, cli.Usagef("--memory %s: at least %s are needed", &o.memory, cli.FormatBytes(minMemory)))
	}
	if o.dataDir == "" {
		problems = append(problems, cli.Usagef("--data is missing: give the directory where the indexes are to be"))
	}
	if o.grace < 0 {
		problems = append(problems, cli.Usagef("--grace %s: it cannot be negative", o.grace))
	}
	if o.scrubInterval < 0 {
		problems = append(problems, cli.Usagef("--scrub-interval %s: it cannot be negative; 0 is never", o.scrubInterval))
	}
	if o.scrubRate <= 0 {
		problems = append(problems, cli.Usagef("--scrub-rate %s: it must be more than nothing; --scrub-interval 0 is never", &o.scrubRate))
	}
	if o.maxStaleness < 0 {
		problems = append(problems, cli.Usagef("--max-staleness %s: it cannot be negative; 0 is no limit", o.maxStaleness))
	}
	var err error
	o.collections, err = parseCollections(o.collectionFlags)
	problems = append(problems, err)
	if err := o.checkAddresses(); err != nil {
		problems = append(problems, err)
	} else { // they take the addresses for ones
		problems = append(problems, o.security.check(o.boxcar, o.grpc), o.http.check(&o.security))
	}
	return errors.Join(append(problems, o.limits.check(), o.tracing.check(), o.entering.check())...)
}

// checkAddresses reports those of listeners that are none.
func (o *daemonOptions) checkAddresses() error {
	var problems []error
	for _, listener := range [][2]string{{"--boxcar", o.boxcar}, {"--http", o.http.address}, {"--grpc", o.grpc}} {
		flag, address := listener[0], listener[1]
		if _, _, err := net.SplitHostPort(address); err != nil && (address != "" || flag != "--grpc") {
			problems = append(problems, cli.Usagef("%s %q: write an address as HOST:PORT, or :PORT for all of this machine", flag, address))
		}
	}
	return errors.Join(problems...)
}

// goMemoryFactor times --memory is the memory at which Go collects garbage more eagerly:
// what --memory bounds, garbage of as much, and the connections.
const goMemoryFactor = 3

// leastGoMemory is what Go needs beside a small --memory.
const leastGoMemory = 512 << 20

// limitMemory has the process keep its garbage in proportion to --memory, unless GOMEMLIMIT
// says how much it may use.
func limitMemory(memory int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(max(goMemoryFactor*memory, leastGoMemory))
	}
}

// serve runs a daemon until ctx ends.
func serve(ctx context.Context, env *cli.Env, o daemonOptions, r *reloader) error {
	if err := requireQueues(o.collections, o.dataDir); err != nil {
		return err
	}
	limitMemory(int64(o.memory))
	d, err := startDaemon(env, o)
	if err != nil {
		return err
	}
	stopReloading := r.start(d)
	env.Log.Info("serving", append(d.addresses(), "collections", len(o.collections))...)
	if env.Terminal && !o.quiet {
		showIndexing(ctx, env, d)
		d.serving.Go(func() { showSuccessors(d.alive, env, d) })
	}
	leave := d.enter(ctx, o.entering)
	select {
	case <-ctx.Done():
		env.Log.Info("ending", "grace", time.Duration(d.grace.Load()).String())
	case <-d.failed:
	}
	leave() // before it stops: clients shall come no more
	stopReloading()
	return d.stop(time.Duration(d.grace.Load()))
}
