package daemon

import (
	"errors"
	"net"
	"time"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/docservice/collection"
	"docstore/internal/units"
)

// Default addresses.
const (
	DefaultBoxcar = "127.0.0.1:7070"
	DefaultHTTP   = "127.0.0.1:7071"
)

// Options configure a Daemon.
type Options struct {
	CollectionFlags []string     // as given
	Collections     []Collection // parsed by Check
	DataDir         string
	Boxcar          string // address
	HTTP            HTTP
	Memory          Memory
	Limits          Limits
	Security        Security
	Grace           time.Duration
	Quarantine      bool
	ScrubInterval   time.Duration // 0: never
	ScrubRate       units.Size    // bytes a second
	MergeRate       units.Size    // bytes a second; 0: no limit
	MaxStaleness    time.Duration // 0: no limit
	Memcached       []string      // addresses; empty: none
	Audit           cli.AuditLog

	// Extensions; nil: none.
	Source   Source
	Protocol Protocol
	Tracer   Tracer
}

// NewOptions returns the default options.
func NewOptions() Options {
	return Options{ScrubRate: collection.DefaultScrubBytesPerSecond}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.CollectionFlags, "collection", nil, "collection to serve and its queue directory, as NAME=QUEUEDIR, or where it is published, as NAME=URL; repeatable")
	flags.StringVar(&o.DataDir, "data", "", "directory of the indexes; used by one daemon only")
	flags.StringVar(&o.Boxcar, "boxcar", DefaultBoxcar, "address to serve Boxcar on")
	o.HTTP.AddFlags(flags)
	flags.Var(&o.Memory, "memory", "memory of all collections, or auto for a sixth of that of the machine or container: 11/16 for memtables and Bloom filters, 1/16 for dictionaries, a quarter for "+
		"requests and responses; excludes mapped files and Go's overhead")
	flags.DurationVar(&o.Grace, "grace", 10*time.Second, "time for requests in flight to finish at shutdown")
	flags.BoolVar(&o.Quarantine, "quarantine", true, "rename a damaged segment to .bad, so that rsync copies it again; false: only report it")
	flags.DurationVar(&o.ScrubInterval, "scrub-interval", collection.DefaultScrubInterval,
		"pause between two verifications of an index; 0: never verify")
	flags.Var(&o.ScrubRate, "scrub-rate", "maximum bytes of all indexes verified per second")
	flags.Var(&o.MergeRate, "merge-rate", "maximum bytes per second that merges of all indexes write, unless they are behind; 0: no limit")
	flags.DurationVar(&o.MaxStaleness, "max-staleness", 0,
		"maximum age of the queue's head file, or of the last contact with the object store, for the daemon to be ready; 0: no limit")
	flags.StringSliceVar(&o.Memcached, "memcached", nil, "memcached servers to load and serve from, host:port, comma-separated; daemons may share them")
	o.Security.AddFlags(flags)
	o.Limits.AddFlags(flags)
	o.Audit.AddFlag(flags)
}

// Check completes the options, and reports all invalid ones. grpc is the address of that
// listener, empty for none.
func (o *Options) Check(grpc string) error {
	var problems []error
	if o.Memory != 0 && o.Memory < minMemory {
		problems = append(problems, cli.Usagef("--memory %s: must be at least %s", &o.Memory, units.FormatBytes(minMemory)))
	}
	if o.DataDir == "" {
		problems = append(problems, cli.Usagef("--data is missing; give the directory for the indexes"))
	}
	if o.Grace < 0 {
		problems = append(problems, cli.Usagef("--grace %s: must not be negative", o.Grace))
	}
	if o.ScrubInterval < 0 {
		problems = append(problems, cli.Usagef("--scrub-interval %s: must not be negative; 0 disables the scrub", o.ScrubInterval))
	}
	if o.ScrubRate <= 0 {
		problems = append(problems, cli.Usagef("--scrub-rate %s: must be positive; --scrub-interval 0 disables the scrub", &o.ScrubRate))
	}
	if o.MaxStaleness < 0 {
		problems = append(problems, cli.Usagef("--max-staleness %s: must not be negative; 0 means no limit", o.MaxStaleness))
	}
	var err error
	o.Collections, err = ParseCollections(o.CollectionFlags)
	problems = append(problems, err)
	if err := o.checkAddresses(grpc); err != nil {
		problems = append(problems, err)
	} else { // they need valid addresses
		problems = append(problems, o.Security.Check(o.Boxcar, grpc), o.HTTP.Check(&o.Security))
	}
	return errors.Join(append(problems, o.Limits.Check())...)
}

// checkAddresses reports invalid addresses of listeners.
func (o *Options) checkAddresses(grpc string) error {
	var problems []error
	for _, listener := range [][2]string{{"--boxcar", o.Boxcar}, {"--http", o.HTTP.Address}, {"--grpc", grpc}} {
		flag, address := listener[0], listener[1]
		if _, _, err := net.SplitHostPort(address); err != nil && (address != "" || flag != "--grpc") {
			problems = append(problems, cli.Usagef("%s %q: write an address as HOST:PORT, or :PORT for all of this machine", flag, address))
		}
	}
	return errors.Join(problems...)
}
