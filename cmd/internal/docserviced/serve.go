package docserviced

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/settings"
	"docstore/docservice/collection"
	"docstore/docservice/server"
	"docstore/docservice/server/bucketsource"
	"docstore/docservice/server/grpcserver"
	"docstore/docservice/server/otlptrace"
)

func newServe(env *cli.Env) *cobra.Command { return newServeWith(env, newOptions()) }

// newServeWith returns the command that sets these options.
func newServeWith(env *cli.Env, o *serveOptions) *cobra.Command {
	command := &cobra.Command{
		Use:   "serve {--collection NAME=QUEUEDIR | --load NAME=FILE}... [--data DIR]",
		Short: "Index queues and serve their documents",
		Long: `Serve tails each queue into an index below --data and serves its documents over
Boxcar. It answers at once from existing indexes, and is ready when every queue
has been read to its end. It reports damaged files and serves the undamaged
documents. In a copy of a queue it renames a damaged segment to .bad, once, so
that rsync copies it again. It verifies the indexes continuously at
--scrub-rate, and rebuilds a damaged one from its queue while the readable part
is served. If another queue replaces a served one, it is indexed in parallel,
and served when it has been read to its end.

With --load serve first appends a file to a queue in --data, behind the records
that the queue has, or replaces them if the file was replaced, and prints where
the documents are served. Without --data queue and index are in a temporary
directory, which is removed at the end.

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
--http-lookup and --http-debug. On loopback it serves host names with a dot
only if --http-hosts lists them. Web pages of other origins read documents only
if --http-cors lists them. docs/security.md describes how to create and rotate
certificates and tokens. --max-in-flight, --rate and --client-rate limit
clients, which retry refused requests on other servers: docs/operating.md.

A collection that is published in an object store, NAME=s3://BUCKET/PREFIX or
NAME=file:///DIRECTORY, is fetched to --data: the manifest that is pinned for
--group, or for all servers, or else announced. After a rollback the daemon goes
back to the earlier manifest while it serves. If the store is unreachable, it
serves the last manifest. It fetches files from --peers first. It is ready when
it has reached its target of the start: a manifest, and the documents announced
after it. docs/distribution.md.

With --column the collections have several shards, and the daemon holds
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
YAML file with flags as keys, in that order: docs/configuration.md. The result
is printed by docserviced config.

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
      --boxcar :7070 --tls-cert be-1.crt --tls-key be-1.key --tls-client-ca clients.crt
  docserviced serve --load jobs=jobs.ndjson`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			remove, err := o.loading.prepare(command.Flags())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, remove()) }()
			if err := o.check(); err != nil {
				return err
			}
			r, err := newReloader(command, env)
			if err != nil {
				return err
			}
			return serve(command.Context(), env, *o, r)
		},
	}
	o.addFlags(command)
	cli.Group(command, "Common flags", "collection", "load", "id-field", "data", "boxcar", "http", "grpc", "memory", "config")
	cli.Group(command, "Flags of access", "tls-cert", "tls-key", "tls-client-ca", "token-file", "access", "operators", "insecure", "insecure-anonymous", "audit-log")
	cli.Group(command, "Flags of HTTP", "http-hosts", "http-lookup", "http-debug", "http-open", "http-cors")
	cli.Group(command, "Flags of limits", "max-conns", "max-slots", "max-in-flight", "client-share", "rate", "rate-burst", "client-rate", "client-rate-burst", "max-conn-age")
	cli.Group(command, "Flags of discovery and object stores", "discovery", "advertise", "zone", "weight", "group", "etcd", "column", "rejoin", "keep-moved", "s3-endpoint",
		"s3-path-style", "max-disk", "download-rate", "downloads", "peers", "peers-ca", "peers-token-file", "peer-transfers", "peer-rate")
	return command
}

// serveOptions configure a server.
type serveOptions struct {
	server.Options
	collections  []string // values of --collection
	loading      loading
	grace        time.Duration
	audit        cli.AuditLog
	quiet        bool
	grpc         string // address; empty: none
	tracing      tracing
	registration registration
	source       sourceOptions
}

// newOptions returns the default options of serve.
func newOptions() *serveOptions {
	return &serveOptions{Options: server.Options{ScrubRate: collection.DefaultScrubBytesPerSecond}}
}

func (o *serveOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	o.addDaemonFlags(flags)
	flags.BoolVar(&o.quiet, "quiet", false, "do not show the progress of the first indexing")
	flags.StringVar(&o.grpc, "grpc", "", "address to serve gRPC on, for clients without Boxcar; empty: none")
	o.tracing.addFlags(flags)
	o.registration.addFlags(flags)
	o.source.addFlags(flags)
	command.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	settings.With(command, configPrefix)
}

// check completes the options, and reports all invalid ones.
func (o *serveOptions) check() error {
	return errors.Join(o.checkDaemon(), o.tracing.check(), o.registration.check(o.source.Column != ""), o.source.check(), o.checkColumn())
}

// process is a server with the collections of object stores, gRPC and tracing.
type process struct {
	*server.Server
	source *bucketsource.Source
	tracer *otlptrace.Tracer    // nil: none
	grpc   *grpcserver.Protocol // nil: none
}

// startProcess opens all parts and starts to serve. On error it closes what it opened.
func startProcess(env *cli.Env, o serveOptions) (*process, error) {
	tracer, err := o.tracing.open(context.Background(), env)
	if err != nil {
		return nil, err
	}
	source, err := o.openSource(env.Log)
	if err != nil {
		return nil, err
	}
	if tracer != nil {
		o.Tracer, source.Trace = tracer, tracer.Pool
	}
	s := &process{source: bucketsource.New(source), tracer: tracer}
	o.Source, o.Logger, o.Audit = s.source, env.Log, o.auditDrain(env)
	if env.Recent != nil {
		o.RecentLog = func() string { return withoutPasswords(env.Recent.String()) }
	}
	if o.grpc != "" {
		options := grpcserver.Options{Address: o.grpc}
		if tracer != nil {
			options.Interceptor = tracer.Call
		}
		s.grpc = grpcserver.New(options)
		o.Protocol = s.grpc
	}
	s.Server, err = server.Start(o.Options)
	if wrong := (bucketsource.OptionError{}); errors.As(err, &wrong) {
		err = cli.Usagef("%w", err)
	}
	return s, err
}

// addresses returns the addresses of the listeners, for the log.
func (s *process) addresses() []any {
	r := []any{"boxcar", s.BoxcarAddress(), "http", s.HTTPURL(s.HTTPAddress())}
	if s.grpc != nil {
		r = append(r, "grpc", s.grpc.Address())
	}
	return r
}

// serve runs a server until ctx ends.
func serve(ctx context.Context, env *cli.Env, o serveOptions, r *reloader) error {
	if err := o.loading.load(ctx, env, o.DataDir, o.quiet); err != nil {
		return err
	}
	if err := server.RequireQueues(o.Collections, o.DataDir); err != nil {
		return err
	}
	if err := o.audit.Check(env); err != nil {
		return err
	}
	server.SetMemoryLimit(o.Memory)
	o.Settings = r.describe
	s, err := startProcess(env, o)
	if err != nil {
		return err
	}
	stopReloading := r.start(s.Server)
	env.Log.Info("serving", append(s.addresses(), "collections", len(o.Collections))...)
	if env.Terminal && !o.quiet {
		showIndexing(ctx, env, s.Server)
		s.Go(func() { showReplacements(s.Alive(), env, s.Server) })
	}
	if len(o.loading.values) > 0 {
		s.Go(func() { o.loading.show(s.Alive(), env, s.Server) })
	}
	leave := s.register(o.registration)
	select {
	case <-ctx.Done():
		env.Log.Info("ending", "grace", r.grace().String())
	case <-s.Failed():
	}
	s.Drain() // before this server leaves its columns, so that clients use the other rows
	s.source.Leave()
	leave() // before the shutdown, so that no new clients come
	stopReloading()
	return s.Stop(r.grace())
}

// auditDrain returns the function that records that a client drained or undrained the
// daemon, or was refused.
func (o *serveOptions) auditDrain(env *cli.Env) func(*boxcarrpc.Peer, string, error) {
	return func(client *boxcarrpc.Peer, method string, refused error) {
		by := client.Identity.Kind.String()
		if client.Identity.Authenticated() {
			by = client.Identity.Name
		}
		err := o.audit.Record(env, strings.ToLower(path.Base(method)), by, refused,
			slog.String("identity", client.Identity.Kind.String()), slog.String("address", client.Address.String()), slog.String("client", client.Name))
		if err != nil {
			env.Log.Error("audit", "error", err)
		}
	}
}
