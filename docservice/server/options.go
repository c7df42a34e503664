package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice/collection"
	"docstore/internal/host"
	"docstore/internal/units"
)

// Default addresses.
const (
	DefaultBoxcar = "127.0.0.1:7070"
	DefaultHTTP   = "127.0.0.1:7071"
)

// Options configure a Server. Only Collections and DataDir are required. Errors name the
// options as the flags of docserviced.
type Options struct {
	Collections []Collection
	DataDir     string // of the indexes; used by one process only
	Boxcar      string // address; the default is DefaultBoxcar
	HTTP        HTTP
	// Memory, in bytes, of all collections: 11/16 for memtables and Bloom filters, 1/16 for
	// dictionaries, a quarter for requests and responses. The default is a sixth of that of the
	// machine or container.
	Memory     int64
	Limits     Limits
	Security   Security
	Quarantine bool // rename damaged segments, so that rsync copies them again
	// ScrubInterval is the pause between two verifications of an index; 0: never verify.
	ScrubInterval time.Duration
	ScrubRate     int64         // bytes per second; the default is that of the collection
	MergeRate     int64         // bytes per second; 0: no limit
	MaxStaleness  time.Duration // 0: no limit
	Memcached     []string      // addresses; empty: none
	Host          *host.Host    // nil: the machine of this process

	// Logger receives the log; the default discards it.
	Logger *slog.Logger
	// RecentLog returns the latest lines of the log for /debug/log; nil: there are none.
	RecentLog func() string
	// Settings describes the effective settings for /debug/settings; nil: they are unknown.
	Settings func() string
	// Audit records that a client drained or undrained the server by a method, or why it was
	// refused; nil: nothing is recorded.
	Audit func(client *boxcarrpc.Peer, method string, refused error)

	// Extensions; nil: none.
	Source   Source
	Protocol Protocol
	Tracer   Tracer
}

// withDefaults returns the options with their defaults.
func (o Options) withDefaults() Options {
	o.Boxcar, o.HTTP.Address = cmp.Or(o.Boxcar, DefaultBoxcar), cmp.Or(o.HTTP.Address, DefaultHTTP)
	o.ScrubRate = cmp.Or(o.ScrubRate, collection.DefaultScrubBytesPerSecond)
	o.Limits = o.Limits.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Host == nil {
		o.Host = host.OS
	}
	if o.Tracer == nil {
		o.Tracer = noTracer{}
	}
	return o
}

// Check completes the options, and reports all invalid ones. grpc is the address of that
// listener, empty for none.
func (o *Options) Check(grpc string) error {
	var problems []error
	if o.Memory != 0 && o.Memory < MinMemory {
		problems = append(problems, fmt.Errorf("--memory %s: must be at least %s", (*units.Size)(&o.Memory), units.FormatBytes(MinMemory)))
	}
	if o.DataDir == "" {
		problems = append(problems, fmt.Errorf("--data is missing; give the directory for the indexes"))
	}
	if o.ScrubInterval < 0 {
		problems = append(problems, fmt.Errorf("--scrub-interval %s: must not be negative; 0 disables the scrub", o.ScrubInterval))
	}
	if o.ScrubRate < 0 {
		problems = append(problems, fmt.Errorf("--scrub-rate %d: must be positive; --scrub-interval 0 disables the scrub", o.ScrubRate))
	}
	if o.MaxStaleness < 0 {
		problems = append(problems, fmt.Errorf("--max-staleness %s: must not be negative; 0 means no limit", o.MaxStaleness))
	}
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
			problems = append(problems, fmt.Errorf("%s %q: write an address as HOST:PORT, or :PORT for all of this machine", flag, address))
		}
	}
	return errors.Join(problems...)
}
