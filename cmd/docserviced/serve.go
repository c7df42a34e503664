package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice/collection"
)

// Default addresses.
const (
	defaultBoxcar = "127.0.0.1:7070"
	defaultHTTP   = "127.0.0.1:7071"
)

func newServe(env *cli.Env) *cobra.Command { return newServeWith(env, newOptions()) }

// newServeWith returns the command that sets these options.
func newServeWith(env *cli.Env, o *daemonOptions) *cobra.Command {
	command := &cobra.Command{
		Use:   "serve --collection NAME=QUEUEDIR [--collection ...] --data DIR",
		Short: "Index queues and serve their documents",
		Long: `Serve tails each queue into an index below --data and serves its documents over
Boxcar. It answers at once from existing indexes, and is ready when every queue
has been read to its end. It reports damaged files and serves the undamaged
documents. In a copy of a queue it renames a damaged segment to .bad, once, so
that rsync copies it again. It verifies the indexes continuously at
--scrub-rate, and rebuilds a damaged one from its queue while the readable part
is served. If another queue replaces a served one, it is indexed in parallel,
and served when it has been read to its end.

HTTP endpoints:

  /                             status page, updated continuously
  /api/v1/status                the same as JSON; docs/status.md has the fields
  /fleet?collection=NAME        servers and moves of a sharded collection of --etcd
  /api/v1/fleet?collection=NAME the same as JSON
  /healthz                      200 while the process runs
  /readyz                       200 once every queue has been read to its end, else
                                503; reasons and faults as JSON. ?draining=503 also
                                answers 503 while the daemon is drained
  /metrics                      for Prometheus
  /documents/COLLECTION/ID      the document; 404 not found, 503 unavailable here
  POST /documents/COLLECTION    many documents by ids, as NDJSON
  /collections                  the collections, and whether they are ready
  /collections/COLLECTION/ids   ids in order, ?prefix= after= limit=, one page
  .../count, .../export         number of ids; their documents as NDJSON
  /openapi.yaml                 the OpenAPI description of the above
  /debug/pprof/                 profiles
  /debug/log, /debug/settings   the recent log; the settings and their sources

Other hosts are served over TLS, or in plain text with --insecure. Clients
authenticate with a certificate of --tls-client-ca or a token of --token-file.
HTTP on an address other than loopback needs both, or --http-open. Without
authentication it serves only /healthz and /readyz; documents and /debug need
--http-lookup and --http-debug. docs/security.md describes how to create and
rotate certificates and tokens. --max-in-flight, --rate and --client-rate limit
clients, which retry refused requests on other servers:
docs/operating-boxcar.md.

A collection that is published in an object store, NAME=s3://BUCKET/PREFIX or
NAME=file:///DIRECTORY, is fetched to --data: the manifest that is pinned for
--group, or for all servers, or else announced. After a rollback the daemon goes
back to the earlier manifest while it serves. If the store is unreachable, it
serves the last manifest. It fetches files from --peers first. It is ready when
it has reached the manifest that was its target at the start.
docs/distribution.md.

With --column the collections are divided into shards, and the daemon holds
those that the placement in --etcd assigns to its column: docserviced placement.
Over HTTP and gRPC it answers for all shards, and passes on requests for those
of other columns. A shard is served when it is ready; one that moves away is
served for --keep-moved more. The daemon takes a row of its --zone, and the
same one after a restart within --rejoin. If etcd is unreachable, it serves the
shards of the last placement.

With --memcached the daemon stores documents in Memcached as it reads the
queues, serves them from there, and reads the segments on a miss or a failure
of Memcached. Use it for queues on slow disks: segments in the page cache are
faster.

With --grpc the same service is served over gRPC, with health and reflection,
for languages without a Boxcar client: docs/grpc.md.

Flags can also be set by the environment, --data as DOCSERVICED_DATA, and by a
YAML file with flags as keys, in that order: docs/configuration.md. docserviced
config prints the result.

SIGHUP, or a change of the file of --config, reloads the file and the
environment: new collections are served, --log-level, --grace and the limits of
requests take effect at once, and the log names the changed settings that need
a restart. If a setting is invalid, nothing changes. Certificates and tokens
are reloaded automatically.

SIGINT and SIGTERM stop it: /readyz turns 503, requests in flight are finished
for at most --grace, and the exit status is 0.`,
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

// newOptions returns the default options of serve.
func newOptions() *daemonOptions {
	return &daemonOptions{scrubRate: collection.DefaultScrubBytesPerSecond}
}

func (o *daemonOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringArrayVar(&o.collectionFlags, "collection", nil, "collection to serve and its queue directory, as NAME=QUEUEDIR, or where it is published, as NAME=URL; repeatable")
	flags.StringVar(&o.dataDir, "data", "", "directory of the indexes; used by one daemon only")
	flags.StringVar(&o.boxcar, "boxcar", defaultBoxcar, "address to serve Boxcar on")
	o.http.addFlags(flags)
	flags.Var(&o.memory, "memory", "memory of all collections, or auto for a sixth of that of the machine or container: 11/16 for memtables and Bloom filters, 1/16 for dictionaries, a quarter for "+
		"requests and responses; excludes mapped files and Go's overhead")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "time for requests in flight to finish at shutdown")
	flags.BoolVar(&o.quarantine, "quarantine", true, "rename a damaged segment to .bad, so that rsync copies it again; false: only report it")
	flags.DurationVar(&o.scrubInterval, "scrub-interval", collection.DefaultScrubInterval,
		"pause between two verifications of an index; 0: never verify")
	flags.Var(&o.scrubRate, "scrub-rate", "maximum bytes of all indexes verified per second")
	flags.DurationVar(&o.maxStaleness, "max-staleness", 0,
		"maximum age of the queue's head file, or of the last contact with the object store, for the daemon to be ready; 0: no limit")
	flags.StringSliceVar(&o.memcached, "memcached", nil, "memcached servers to load and serve from, host:port, comma-separated; daemons may share them")
	flags.BoolVar(&o.quiet, "quiet", false, "do not show the progress of the first indexing")
	addGRPCFlags(command, o)
	o.security.addFlags(flags)
	o.limits.addFlags(flags)
	o.tracing.addFlags(flags)
	o.registration.addFlags(flags)
	o.buckets.addFlags(flags)
	o.peers.addFlags(flags)
	o.columns.addFlags(flags)
	o.audit.AddFlag(flags)
	command.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	cli.WithConfig(command, configPrefix)
}

// check completes the options, and reports all invalid ones.
func (o *daemonOptions) check() error {
	var problems []error
	if o.memory != 0 && o.memory < minMemory {
		problems = append(problems, cli.Usagef("--memory %s: must be at least %s", &o.memory, cli.FormatBytes(minMemory)))
	}
	if o.dataDir == "" {
		problems = append(problems, cli.Usagef("--data is missing; give the directory for the indexes"))
	}
	if o.grace < 0 {
		problems = append(problems, cli.Usagef("--grace %s: must not be negative", o.grace))
	}
	if o.scrubInterval < 0 {
		problems = append(problems, cli.Usagef("--scrub-interval %s: must not be negative; 0 disables the scrub", o.scrubInterval))
	}
	if o.scrubRate <= 0 {
		problems = append(problems, cli.Usagef("--scrub-rate %s: must be positive; --scrub-interval 0 disables the scrub", &o.scrubRate))
	}
	if o.maxStaleness < 0 {
		problems = append(problems, cli.Usagef("--max-staleness %s: must not be negative; 0 means no limit", o.maxStaleness))
	}
	var err error
	o.collections, err = parseCollections(o.collectionFlags)
	problems = append(problems, err)
	if err := o.checkAddresses(); err != nil {
		problems = append(problems, err)
	} else { // they need valid addresses
		problems = append(problems, o.security.check(o.boxcar, o.grpc), o.http.check(&o.security))
	}
	return errors.Join(append(problems, o.limits.check(), o.tracing.check(), o.registration.check(o.columns.column != ""), o.buckets.check(), o.peers.check(o.columns.column != ""), o.columns.check(o))...)
}

// checkAddresses reports invalid addresses of listeners.
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

// serve runs a daemon until ctx ends.
func serve(ctx context.Context, env *cli.Env, o daemonOptions, r *reloader) error {
	if err := requireQueues(o.collections, o.dataDir); err != nil {
		return err
	}
	if err := o.audit.Check(env); err != nil {
		return err
	}
	planForThisMachine(o.memory).apply()
	d, err := startDaemon(env, o)
	if err != nil {
		return err
	}
	stopReloading := r.start(d)
	env.Log.Info("serving", append(d.addresses(), "collections", len(o.collections))...)
	if env.Terminal && !o.quiet {
		showIndexing(ctx, env, d)
		d.serving.Go(func() { showReplacements(d.alive, env, d) })
	}
	leave := d.register(ctx, o.registration)
	select {
	case <-ctx.Done():
		env.Log.Info("ending", "grace", time.Duration(d.grace.Load()).String())
	case <-d.failed:
	}
	d.drain() // before this server leaves its columns, so that clients use the other rows
	d.leaveColumns()
	leave() // before the shutdown, so that no new clients come
	stopReloading()
	return d.stop(time.Duration(d.grace.Load()))
}
