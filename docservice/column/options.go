package column

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"docstore/boxcarrpc/discovery"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/docservice/placement/etcdmap"
	"docstore/internal/vfs"
	queueshard "docstore/queue/shard"
)

// Auto is the name of the column for a server that joins the one with the fewest rows.
const Auto = "auto"

// Defaults of Options.
const (
	DefaultRejoin    = 15 * time.Minute
	DefaultKeepMoved = time.Hour
	DefaultDrainTime = 10 * time.Second
)

// MaxKeepMoved bounds Rejoin and KeepMoved.
const MaxKeepMoved = 30 * 24 * time.Hour

// Follower is an open shard: *follow.Follower.
type Follower interface {
	// Status returns the state. The shard can be served when its Files are ready.
	Status() follow.Status
	// Close closes the shard and its collection.
	Close() error
}

// Announced describes the announced manifest of a collection.
type Announced struct {
	Generation string // the incarnation of the collection's record
	Layout     queueshard.Layout
	Bytes      []int64 // of each shard
}

// Options configure a Column. All fields without a default are required.
type Options struct {
	Collection string
	FS         vfs.FS // default: vfs.OS
	Dir        string // of the collection's files; only one process at a time may use it
	Column     string // its name, or Auto
	Zone       string // default: the zone without a name
	// Server has the address and the weight that clients use.
	Server discovery.Server
	Page   string // URL of the status page; default: none
	// Store is the placement. Options.File of the Store is MapFile(Dir).
	Store   *etcdmap.Store
	Service *collection.Service
	// Open opens a shard of a layout in a directory, which exists, and passes its collection to
	// serve, and again each one that replaces it.
	Open func(layout queueshard.Layout, shard int, dir string, serve func(*collection.Collection)) (Follower, error)
	// Announced reads the announced manifest.
	Announced func(context.Context) (Announced, error)
	// Disk returns the used bytes of the data directory and their limit.
	Disk func() (used, limit int64, err error)
	// Rejoin is the time for which a row is kept for this server. The default is DefaultRejoin.
	Rejoin time.Duration
	// KeepMoved is the time for which a shard that has moved away is served and its files are
	// kept. The default is DefaultKeepMoved.
	KeepMoved time.Duration
	// DrainTime is the time for which a removed shard stays open for calls in progress. The
	// default is DefaultDrainTime.
	DrainTime time.Duration
	// Logger logs changes and failures. The default discards them.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Rejoin == 0 {
		o.Rejoin = DefaultRejoin
	}
	if o.KeepMoved == 0 {
		o.KeepMoved = DefaultKeepMoved
	}
	if o.DrainTime == 0 {
		o.DrainTime = DefaultDrainTime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = vfs.OS
	}
	var problems []error
	if o.Column != Auto {
		problems = append(problems, etcdmap.CheckColumn(o.Column))
	}
	if o.Collection == "" || o.Dir == "" || o.Server.Address == "" || o.Store == nil || o.Service == nil || o.Open == nil || o.Announced == nil || o.Disk == nil {
		problems = append(problems, errors.New("column: an option is missing"))
	}
	for name, d := range map[string]time.Duration{"Rejoin": o.Rejoin, "KeepMoved": o.KeepMoved} {
		if d < 0 || d > MaxKeepMoved {
			problems = append(problems, fmt.Errorf("column: %s %s: want up to %s", name, d, MaxKeepMoved))
		}
	}
	return o, errors.Join(problems...)
}
