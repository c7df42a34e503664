package bucketsource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/boxcarrpc/discovery"
	"docstore/docservice/collection"
	"docstore/docservice/column"
	"docstore/docservice/follow"
	"docstore/docservice/peers"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/server"
	"docstore/docservice/server/internal/metric"
	"docstore/docservice/server/livepage"
	"docstore/docservice/sharded"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shard"
)

// columnOf is this server's column of a collection of several shards.
type columnOf struct {
	column *column.Column
	source *Source
	name   string
	bucket *storeClient
	feed   *follow.Feed
	store  *etcdmap.Store
	client *sharded.Client // for requests that are passed on
	peers  *peers.Client   // nil: that of the server
	opened chan struct{}   // closed when column is set
}

// layoutTimeout bounds the time in which a server finds out at its first start that a
// collection has one shard.
const layoutTimeout = 5 * time.Second

// openColumn begins to hold the shards of a collection.
func (s *Source) openColumn(c server.Collection, options *collection.Options) (_ server.Held, err error) {
	b, watched, err := s.openBucket(c)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.DataDir(), c.Name)
	if err := vfs.MakeDir(s.Options().Host.FS, dir); err != nil {
		return nil, err
	}
	of := &columnOf{source: s, name: c.Name, bucket: b, opened: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, of.Close())
		}
	}()
	of.store, err = etcdmap.Open(s.options.Etcd, c.Name, &etcdmap.Options{FS: s.Options().Host.FS, File: column.MapFile(dir), Dial: s.Options().Host.Dial, Observe: s.etcd.Observe, Logger: s.Logger()})
	if err != nil {
		return nil, err
	}
	if m, _ := of.store.Map(); m == nil {
		if err := requireShards(watched, c.Name); err != nil {
			return nil, err
		}
	}
	of.feed = follow.OpenFeed(watched, &follow.FeedOptions{Now: s.Options().Host.Now, Logger: s.Logger()})
	pool := s.pool()
	pool.BufferBytes = s.Messages().Stats().Limit
	if s.options.Trace != nil {
		s.options.Trace(&pool)
	}
	of.client, err = sharded.NewClient(of.store, c.Name, etcdclient.ClientOptions(of.store, &etcdclient.Options{Pool: pool, Store: etcdmap.Options{FS: s.Options().Host.FS}, Dir: dir, Logger: s.Logger()}))
	if err != nil {
		return nil, err
	}
	address, err := s.AdvertisedAddress(s.options.Advertise)
	if err != nil {
		return nil, err
	}
	source := s.peers
	if source == nil {
		of.peers = peers.NewClient(columnSource{of}, &peers.ClientOptions{Pool: pool, Self: address})
		source = of.peers
	}
	of.column, err = column.Open(column.Options{
		Collection: c.Name, FS: s.Options().Host.FS, Dir: dir, Column: s.options.Column, Zone: s.options.Zone,
		Server: discovery.Server{Address: address, Weight: s.options.Weight, Zone: s.options.Zone}, Page: s.pageURL(address),
		Store: of.store, Service: s.Service(), Disk: s.diskUse, Announced: of.announced,
		Rejoin: s.options.Rejoin, KeepMoved: s.options.KeepMoved, Logger: s.Logger(),
		Open: func(layout shard.Layout, i int, dir string, serve func(*collection.Collection)) (column.Follower, error) {
			o := s.followOptions(options, b)
			o.Shard = &follow.Shard{Feed: of.feed, Layout: layout, Number: i}
			name := shard.Name(c.Name, i)
			o.Source = source.Source(name)
			f, err := follow.Open(name, watched, dir, serve, o)
			if err != nil {
				return nil, err
			}
			s.setFollower(name, f)
			return &shardFollower{f, s, name}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	close(of.opened)
	s.Router().Add(c.Name, of.client)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.columns = append(s.mu.columns, of)
	return of, nil
}

// requireShards returns an error if the announced manifest is that of a collection of one shard.
// It returns nil if the manifest cannot be read now.
func requireShards(b bucket.Bucket, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), layoutTimeout)
	defer cancel()
	log, err := publish.OpenLog(ctx, b, time.Now)
	if err != nil {
		return nil
	}
	record, err := log.Load(ctx)
	if err != nil || record.Announced.Number == 0 {
		return nil
	}
	m, err := publish.ReadManifest(ctx, b, record.Announced)
	if err == nil && m.Layout.Shards == 1 {
		return optionErrorf("--column: collection %s has one shard; leave out --column, or write it with docstore-updater append --shards", name)
	}
	return nil
}

// announced describes the announced manifest.
func (c *columnOf) announced(ctx context.Context) (column.Announced, error) {
	m, incarnation, err := c.feed.Announced(ctx)
	switch {
	case err != nil:
		return column.Announced{}, err
	case m.Layout.Shards == 1:
		return column.Announced{}, publish.Refused("manifest %d has one shard: append with --shards to a new queue, and publish it with --new-generation", m.Number)
	}
	return column.Announced{Generation: incarnation, Layout: m.Layout, Bytes: m.ShardBytes()}, nil
}

// Close closes the parts that are open. It is part of server.Held.
func (c *columnOf) Close() error {
	var errs []error
	if c.column != nil {
		errs = append(errs, c.column.Close())
	}
	if c.client != nil {
		errs = append(errs, c.client.Close())
	}
	if c.peers != nil {
		errs = append(errs, c.peers.Close())
	}
	if c.feed != nil {
		c.feed.Close()
	}
	if c.store != nil {
		errs = append(errs, c.store.Close())
	}
	c.bucket.CloseIdle()
	return errors.Join(errs...)
}

// shardFollower is the follower of a shard. The status of the server finds it by its name.
type shardFollower struct {
	*follow.Follower
	source *Source
	name   string
}

// Close implements column.Follower.
func (f *shardFollower) Close() error {
	f.source.setFollower(f.name, nil)
	return f.Follower.Close()
}

// columnSource is the source of the servers of the column that a server has joined.
type columnSource struct{ of *columnOf }

// nameWait is the pause until the column is known.
const nameWait = 500 * time.Millisecond

// Watch implements discovery.Source.
func (s columnSource) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	select {
	case <-s.of.opened:
	case <-ctx.Done():
		return ctx.Err()
	}
	for s.of.column.Name() == "" {
		if !ctxtime.Sleep(ctx, nameWait) {
			return ctx.Err()
		}
	}
	registry, err := s.of.store.Column(s.of.column.Name())
	if err != nil {
		return err
	}
	return registry.Source(nil).Watch(ctx, update)
}

// diskUse returns the bytes that the data directory uses and may use.
func (s *Source) diskUse() (used, limit int64, err error) {
	fsys := s.Options().Host.FS
	if s.disk != nil {
		used, err = s.disk.Used()
		return used, s.options.MaxDisk, err
	}
	if used, err = follow.NewDisk(fsys, s.DataDir(), 0).Used(); err != nil {
		return 0, 0, err
	}
	free, err := fsys.Free(s.DataDir())
	return used, used + free.Bytes, err
}

// pageURL returns the URL of the status page for other machines.
func (s *Source) pageURL(address string) string {
	host, port, err := net.SplitHostPort(s.HTTPAddress())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if host, _, err = net.SplitHostPort(address); err != nil {
			return ""
		}
	}
	return s.HTTPURL(net.JoinHostPort(host, port))
}

// columns returns the columns of collections.
func (s *Source) columns() []*columnOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.columns)
}

// Leave ends the membership in all columns, so that no new requests come.
func (s *Source) Leave() {
	var leaving sync.WaitGroup
	for _, c := range s.columns() {
		leaving.Go(c.column.Leave)
	}
	leaving.Wait()
}

// Name is part of server.Held.
func (c *columnOf) Name() string { return c.name }

// Shards is part of server.Held.
func (c *columnOf) Shards() []server.Shard {
	var shards []server.Shard
	for _, one := range c.source.Collections() {
		if f := c.source.follower(one.Name()); f != nil && strings.HasPrefix(one.Name(), c.name+"/") {
			shards = append(shards, shardOf(one, f))
		}
	}
	return shards
}

// Lookup is part of server.Held.
func (c *columnOf) Lookup(id string) (of *collection.Collection, problem string) {
	m, _ := c.store.Map()
	if m == nil {
		return nil, "The placement of the collection is not known yet."
	}
	i := m.Layout.ShardString(id)
	if of = c.source.Collection(shard.Name(c.name, i)); of == nil {
		return nil, fmt.Sprintf("The document belongs to shard %d of column %s: look it up on one of its servers.", i, m.Shards[i].Column)
	}
	return of, ""
}

// Lister is part of server.Held.
func (c *columnOf) Lister() server.Lister { return c.source.Router().Collection(c.name) }

// Column is part of server.Held: the column is ready when the shards that the placement assigned
// to it at the start are.
func (c *columnOf) Column() *livepage.Column {
	s := c.column.Status()
	states := countStates(s)
	return &livepage.Column{
		Collection: c.name, Column: s.Column, Row: s.Row, Zone: c.source.options.Zone, Report: s.Readiness, Epoch: s.Epoch,
		Serving: states[column.Serving], Fetching: states[column.Fetching], Moved: states[column.Moved], Failed: states[column.Failed],
		UsedBytes: s.Used, LimitBytes: s.Limit,
	}
}

// countStates returns the number of shards in each state.
func countStates(s column.Status) map[column.State]int {
	states := map[column.State]int{column.Fetching: 0, column.Serving: 0, column.Moved: 0, column.Failed: 0}
	for _, one := range s.Shards {
		states[one.State]++
	}
	return states
}

var (
	shardsHeld     = metric.Gauge("shards", "Shards on this server, by state: fetching, serving, moved to another column but still served, or failed.", "collection", "state")
	placementEpoch = metric.Gauge("placement_epoch", "Epoch of the placement that this server follows; 0: none is known.", "collection")
	placementMoves = metric.Gauge("placement_moves", "Shards of the collection that are moving to another column.", "collection")
	columnRow      = metric.Gauge("column_row", "Row of this server in its column; -1: it has held none yet.", "collection", "column")
	forwards       = metric.Counter("forwarded_total", "Requests over HTTP and gRPC passed on to other columns, by outcome; refused ones were above the limit.", "outcome")
)

// columnCollector collects the metrics of columns.
type columnCollector struct{ *Source }

func (c columnCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric.Metric{shardsHeld, placementEpoch, placementMoves, columnRow, forwards} {
		to <- m.Desc
	}
}

func (c columnCollector) Collect(to chan<- prometheus.Metric) {
	list := c.columns()
	for _, of := range list {
		s := of.column.Status()
		for state, n := range countStates(s) {
			shardsHeld.Send(to, float64(n), of.name, string(state))
		}
		placementEpoch.Send(to, float64(s.Epoch), of.name)
		columnRow.Send(to, float64(s.Row), of.name, s.Column)
		moves := 0
		if m, _ := of.store.Map(); m != nil {
			for _, p := range m.Shards {
				if p.Next != "" {
					moves++
				}
			}
		}
		placementMoves.Send(to, float64(moves), of.name)
		collectBucket(to, of.name, of.bucket)
	}
	if len(list) > 0 {
		s := c.Router().Forwards()
		forwards.Send(to, float64(s.Forwarded-s.Failed), "answered")
		forwards.Send(to, float64(s.Failed), "failed")
		forwards.Send(to, float64(s.Refused), "refused")
	}
}
