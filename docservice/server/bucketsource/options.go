package bucketsource

import (
	"context"
	"fmt"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/internal/contact"
	"docstore/queue/bucket"
)

// Options configure a Source. Only Downloads is required.
type Options struct {
	Store bucket.Options
	// OpenBucket opens the store of a collection. The default is bucket.Open.
	OpenBucket func(ctx context.Context, url string, o bucket.Options) (*bucket.Client, error)
	// Group selects pinned manifests: see publish.Log.
	Group string
	// Etcd, as HOST:PORT,... or etcd://HOST:PORT,.../PREFIX, reports changes of collections at
	// once and has the placement of shards; empty: the store is polled.
	Etcd         string
	MaxDisk      int64 // bytes of the data directory; 0: no limit
	DownloadRate int64 // bytes per second; 0: no limit
	Downloads    int   // files of a collection that are fetched at the same time

	// Peers are servers of the same collections, from which files are fetched before the
	// store; nil: none.
	Peers discovery.Source
	// PeersEtcd is the contact with the etcd that lists the peers; nil: none does.
	PeersEtcd *contact.Contact
	// Pool has the credentials for these, and for the servers to which requests for shards
	// are passed on.
	Pool boxcarrpc.PoolOptions
	// Trace adds traces to the pool of requests that are passed on; nil: none.
	Trace         func(*boxcarrpc.PoolOptions)
	PeerTransfers int   // files that are sent to peers at the same time; 0: none
	PeerRate      int64 // bytes per second that are sent to peers; 0: no limit

	// Column is the replica set whose shards this server holds, column.Auto for that with the
	// fewest replicas; empty: the server holds whole collections.
	Column string
	// Rejoin is the time for which the place of this server in its replica set is kept.
	Rejoin time.Duration
	// KeepMoved is the time for which a shard that has moved away is served.
	KeepMoved time.Duration

	// Advertise is the address under which other servers and clients find this one; empty:
	// that of the listener.
	Advertise string
	Weight    float64 // capacity relative to other servers
	Zone      string
}

// An OptionError says that an option or the URL of a collection is wrong.
type OptionError struct{ error }

// Unwrap returns the cause.
func (e OptionError) Unwrap() error { return e.error }

func optionErrorf(format string, args ...any) error {
	return OptionError{fmt.Errorf(format, args...)}
}
