package docserviced

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/cmd/internal/cli"
	"docstore/docservice/collection"
	"docstore/docservice/server"
	"docstore/docservice/server/otlptrace"
	"docstore/internal/units"
)

// graceFlag is read by the reloader.
const graceFlag = "grace"

// addDaemonFlags adds the flags of server.Options.
func (o *serveOptions) addDaemonFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.collections, "collection", nil, "collection to serve and its queue directory, as NAME=QUEUEDIR, or where it is published, as NAME=URL; repeatable")
	o.loading.addFlags(flags)
	flags.StringVar(&o.DataDir, dataFlag, "", "directory of the indexes; used by one daemon only; with --load the default is a temporary one")
	flags.StringVar(&o.Boxcar, "boxcar", server.DefaultBoxcar, "address to serve Boxcar on")
	addHTTPFlags(flags, &o.HTTP)
	flags.Var((*memorySize)(&o.Memory), "memory", "memory of all collections, or auto for a sixth of that of the machine or container: 11/16 for memtables and Bloom filters, 1/16 for dictionaries, a quarter for "+
		"requests and responses; excludes mapped files and Go's overhead")
	flags.DurationVar(&o.grace, graceFlag, 10*time.Second, "time for requests in flight to finish at shutdown")
	flags.BoolVar(&o.Quarantine, "quarantine", true, "rename a damaged segment to .bad, so that rsync copies it again; false: only report it")
	flags.DurationVar(&o.ScrubInterval, "scrub-interval", collection.DefaultScrubInterval,
		"pause between two verifications of an index; 0: never verify")
	flags.Var((*units.Size)(&o.ScrubRate), "scrub-rate", "maximum bytes of all indexes verified per second")
	flags.Var((*units.Size)(&o.MergeRate), "merge-rate", "maximum bytes per second that merges of all indexes write, unless they are behind; 0: no limit")
	flags.DurationVar(&o.MaxStaleness, "max-staleness", 0,
		"maximum age of the queue's head file, or of the last contact with the object store, for the daemon to be ready; 0: no limit")
	flags.StringSliceVar(&o.Memcached, "memcached", nil, "memcached servers to load and serve from, host:port, comma-separated; daemons may share them")
	addSecurityFlags(flags, &o.Security)
	addLimitFlags(flags, &o.Limits)
	o.audit.AddFlag(flags)
}

func addHTTPFlags(flags *pflag.FlagSet, h *server.HTTP) {
	flags.StringVar(&h.Address, "http", server.DefaultHTTP, "address to serve HTTP on; not on loopback it needs --tls-cert and --token-file or --tls-client-ca, or --http-open")
	flags.BoolVar(&h.Open, "http-open", false, "serve HTTP to other hosts without authentication, in plain text without --tls-cert")
	flags.StringSliceVar(&h.Hosts, "http-hosts", nil, "host names under which HTTP is served, comma-separated; on loopback in addition to loopback names and addresses, else in addition to addresses; empty: on loopback those without a dot, else every name")
	flags.StringSliceVar(&h.Origins, "http-cors", nil, "origins of web pages that may read documents and lists over HTTP, such as https://www.example.org, comma-separated; *: all, without a token")
	flags.BoolVar(&h.LookUp, "http-lookup", false, "also serve documents, ids and exports over HTTP to other hosts")
	flags.BoolVar(&h.Debug, "http-debug", false, "also serve profiles, the recent log and settings over HTTP to other hosts")
}

func addLimitFlags(flags *pflag.FlagSet, l *server.Limits) {
	flags.IntVar(&l.Conns, "max-conns", boxcarrpc.DefaultMaxConns, "maximum Boxcar connections, and at most one per 32 KiB of --memory; others are closed")
	flags.IntVar(&l.Slots, "max-slots", boxcarrpc.DefaultMaxLanes, "maximum slots held by all Boxcar clients")
	flags.IntVar(&l.InFlight, "max-in-flight", budget.DefaultMaxInFlight, "maximum concurrent requests over Boxcar, gRPC and HTTP, and at most one per 8 KiB of --memory; "+
		"others are refused, and Boxcar clients retry on another server")
	flags.Float64Var(&l.ClientShare, "client-share", boxcarrpc.DefaultClientShare, "maximum share of connections, and of Boxcar slots and streams, for one client, identified as for --client-rate; 1: no limit")
	flags.Float64Var(&l.Rate, "rate", 0, "maximum requests per second; others are refused; 0: no limit")
	flags.IntVar(&l.Burst, "rate-burst", 0, "maximum burst of --rate; 0: the requests of 100 ms")
	flags.Float64Var(&l.ClientRate, "client-rate", 0, "maximum requests per second of each client, identified by certificate or token, "+
		"otherwise by address; 0: no limit")
	flags.IntVar(&l.ClientBurst, "client-rate-burst", 0, "maximum burst of --client-rate; 0: the requests of 100 ms")
	flags.DurationVar(&l.ConnAge, "max-conn-age", server.DefaultConnAge, "age at which clients over gRPC and HTTP are asked to connect again, "+
		"up to a tenth more or less; requests in progress are finished; 0: never")
}

func addSecurityFlags(flags *pflag.FlagSet, s *server.Security) {
	flags.StringVar(&s.Certificate, "tls-cert", "", "certificate (PEM) for TLS over Boxcar and gRPC, and over HTTP unless on loopback; reloaded when it changes")
	flags.StringVar(&s.Key, "tls-key", "", "key of --tls-cert (PEM)")
	flags.StringVar(&s.ClientCA, "tls-client-ca", "", "authorities (PEM) of client certificates; clients then need a certificate, or a token of --token-file")
	flags.StringVar(&s.TokenFile, "token-file", "", "file with a line NAME TOKEN for each client; reloaded when it changes")
	flags.StringVar(&s.Access, "access", "", "file with a line CLIENT COLLECTION... for each client that may use collections, by name of certificate or token; * is all; reloaded when it changes; empty: each may use all")
	flags.StringSliceVar(&s.Operators, "operators", nil, "clients that may drain the daemon, by name of certificate or token, comma-separated")
	flags.BoolVar(&s.Insecure, "insecure", false, "serve other hosts over Boxcar and gRPC in plain text without authentication")
	flags.BoolVar(&s.InsecureAnonymous, "insecure-anonymous", false, "serve other hosts over TLS without authentication")
}

// checkDaemon completes the options of the daemon, and reports all invalid ones.
func (o *serveOptions) checkDaemon() error {
	var problems []error
	if o.grace < 0 {
		problems = append(problems, cli.Usagef("--grace %s: must not be negative", o.grace))
	}
	if o.ScrubRate <= 0 {
		problems = append(problems, cli.Usagef("--scrub-rate %s: must be positive; --scrub-interval 0 disables the scrub", (*units.Size)(&o.ScrubRate)))
	}
	problems = append(problems, o.checkCollections())
	if err := o.Check(o.grpc); err != nil {
		problems = append(problems, cli.Usagef("%w", err))
	}
	return errors.Join(problems...)
}

// checkCollections completes the collections, those of queues and those of loaded files.
func (o *serveOptions) checkCollections() error {
	if len(o.loading.values) == 0 {
		var err error
		o.Collections, err = parseCollections(o.collections)
		return err
	}
	if o.DataDir == "" {
		o.DataDir = os.TempDir() // until prepare creates a directory in it
	}
	names := make(map[string]bool)
	var queues error
	o.Collections, queues = parseNamed("--collection", collectionForm, o.collections, names)
	loaded, err := o.loading.parse(o.DataDir, names)
	o.Collections = append(o.Collections, loaded...)
	return errors.Join(queues, err)
}

// collectionForm is the form of --collection.
const collectionForm = "NAME=QUEUEDIR or NAME=URL"

// parseCollections parses the values of --collection. It reports all errors together.
func parseCollections(values []string) ([]server.Collection, error) {
	if len(values) == 0 {
		return nil, cli.Usagef("--collection is missing; give at least one " + collectionForm)
	}
	return parseNamed("--collection", collectionForm, values, make(map[string]bool))
}

// parseNamed parses the values NAME=SOURCE of a flag. It adds their names to seen.
func parseNamed(flag, form string, values []string, seen map[string]bool) (collections []server.Collection, err error) {
	var problems []error
	for _, value := range values {
		name, source, _ := strings.Cut(value, "=")
		switch {
		case source == "":
			problems = append(problems, cli.Usagef("%s %s: must be %s", flag, value, form))
		case !server.ValidName(name):
			problems = append(problems, cli.Usagef("%s %s: a name has up to 64 letters, digits, dots, dashes and underscores, begins with a letter or digit, and is not LOCK", flag, value))
		case seen[name]:
			problems = append(problems, cli.Usagef("%s %s: duplicate name", flag, value))
		}
		seen[name] = true
		collections = append(collections, server.Collection{Name: name, Source: source})
	}
	return collections, errors.Join(problems...)
}

// memorySize is the value of --memory: a size, or auto, which is 0.
type memorySize units.Size

const autoMemory = "auto"

// Set implements pflag.Value.
func (m *memorySize) Set(text string) error {
	if text == autoMemory {
		*m = 0
		return nil
	}
	if err := (*units.Size)(m).Set(text); err != nil {
		return fmt.Errorf("%w; write auto for a share of the machine's memory", err)
	}
	if *m == 0 {
		return fmt.Errorf("must be at least %s", units.FormatBytes(server.MinMemory))
	}
	return nil
}

// Type implements pflag.Value.
func (m *memorySize) Type() string { return "size" }

// String implements pflag.Value.
func (m *memorySize) String() string {
	if *m == 0 {
		return autoMemory
	}
	return (*units.Size)(m).String()
}

// tracing holds the flag of the trace collector.
type tracing struct{ url string }

func (t *tracing) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.url, "otlp", "", "OpenTelemetry collector for OTLP over HTTP, for example http://collector:4318; "+
		"it receives spans of requests that their clients trace, with the stages index and segments, and of those passed on; "+
		"OTEL_TRACES_SAMPLER can select more")
}

func (t *tracing) check() error {
	if t.url == "" {
		return nil
	}
	if err := otlptrace.CheckURL(t.url); err != nil {
		return cli.Usagef("--otlp %s: %w", t.url, err)
	}
	return nil
}

// open returns the source of spans, nil if tracing is disabled.
func (t *tracing) open(ctx context.Context, env *cli.Env) (*otlptrace.Tracer, error) {
	if t.url == "" {
		return nil, nil
	}
	return otlptrace.New(ctx, t.url, env.Log)
}
