package bucketsource

import (
	"errors"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/docservice/peers"
	"docstore/docservice/server"
	"docstore/queue/publish/etcdlog"
)

// Source is the server.Source of collections in object stores, and of the shards that a
// placement assigns to this server.
type Source struct {
	*server.Server // set by Start
	options        Options
	disk           *follow.Disk  // limit of the data directory; nil: none
	downloads      *rate.Limiter // nil: no limit
	files          *peers.Server // sends files to other servers
	peers          *peers.Client // fetches files from them; nil: there are none
	fleets         fleets        // for the fleet page

	mu struct {
		sync.Mutex
		followers map[string]*follow.Follower // by the name of the collection or shard
		held      []*followed
		columns   []*columnOf
		etcd      *etcdlog.Arbiter // of all collections; nil: not opened
	}
}

// New returns a source for Options.Source of a server.
func New(o Options) *Source {
	r := &Source{options: o}
	r.mu.followers = make(map[string]*follow.Follower)
	return r
}

// Start implements server.Source.
func (r *Source) Start(d *server.Server) (server.Parts, error) {
	r.Server = d
	if err := r.openPeers(); err != nil {
		return server.Parts{}, err
	}
	r.limitDownloads()
	return server.Parts{
		Boxcar: r.servePeers,
		Routes: func(mux *http.ServeMux) { r.newFleetPage().Handle(mux) },
		Collectors: []prometheus.Collector{
			bucketCollector{r}, peerCollector{r}, columnCollector{r},
		},
	}, nil
}

// Open implements server.Source.
func (r *Source) Open(c server.Collection, options *collection.Options) (server.Held, error) {
	if r.options.Column != "" {
		return r.openColumn(c, options)
	}
	return r.openFollower(c, options)
}

// Close implements server.Source.
func (r *Source) Close() error {
	errs := []error{r.fleets.close()}
	r.mu.Lock()
	etcd := r.mu.etcd
	r.mu.Unlock()
	if etcd != nil {
		errs = append(errs, etcd.Close())
	}
	if r.peers != nil {
		errs = append(errs, r.peers.Close())
	}
	return errors.Join(errs...)
}

// setFollower records the follower of a collection or shard; nil removes it.
func (r *Source) setFollower(name string, f *follow.Follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.followers[name] = f; f == nil {
		delete(r.mu.followers, name)
	}
}

// follower returns the follower of a collection or shard, nil if it has a local queue.
func (r *Source) follower(name string) *follow.Follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.followers[name]
}
