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
	"docstore/docservice/server/internal/metric"
	"docstore/internal/contact"
	"docstore/queue/bucket"
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
	etcd           *contact.Contact
	sampler        metric.Sampler

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
	if o.OpenBucket == nil {
		o.OpenBucket = bucket.Open
	}
	r := &Source{options: o}
	r.mu.followers = make(map[string]*follow.Follower)
	return r
}

// Start implements server.Source.
func (s *Source) Start(d *server.Server) (server.Parts, error) {
	s.Server = d
	s.etcd = contact.New("etcd", s.Logger().With("etcd", s.options.Etcd))
	if s.options.Etcd != "" {
		s.MeasureEtcd("etcd", s.etcd)
	}
	if s.options.PeersEtcd != nil {
		s.MeasureEtcd("peers", s.options.PeersEtcd)
	}
	if err := s.openPeers(); err != nil {
		return server.Parts{}, err
	}
	s.limitDownloads()
	return server.Parts{
		Boxcar: s.servePeers,
		Routes: func(mux *http.ServeMux) { s.newFleetPage().Handle(mux) },
		Collectors: []prometheus.Collector{
			bucketCollector{s}, peerCollector{s}, columnCollector{s},
		},
	}, nil
}

// Open implements server.Source.
func (s *Source) Open(c server.Collection, options *collection.Options) (server.Held, error) {
	if s.options.Column != "" {
		return s.openColumn(c, options)
	}
	return s.openFollower(c, options)
}

// Close implements server.Source.
func (s *Source) Close() error {
	errs := []error{s.fleets.close()}
	s.mu.Lock()
	etcd := s.mu.etcd
	s.mu.Unlock()
	if etcd != nil {
		errs = append(errs, etcd.Close())
	}
	if s.peers != nil {
		errs = append(errs, s.peers.Close())
	}
	return errors.Join(errs...)
}

// setFollower records the follower of a collection or shard; nil removes it.
func (s *Source) setFollower(name string, f *follow.Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.followers[name] = f; f == nil {
		delete(s.mu.followers, name)
	}
}

// follower returns the follower of a collection or shard, nil if it has a local queue.
func (s *Source) follower(name string) *follow.Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.followers[name]
}
