package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"docstore/boxcarrpc/discovery"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/livepage"
	"docstore/docservice/collection"
	"docstore/docservice/column"
	"docstore/docservice/follow"
	"docstore/docservice/peers"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/sharded"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shard"
)

// columnOptions configure a server of the shards of a column.
type columnOptions struct {
	column, zone      string // no column: collections are not divided
	rejoin, keepMoved time.Duration
}

func (o *columnOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.column, "column", "", "hold the shards of this column of a divided collection; auto: of the column with the fewest servers")
	flags.StringVar(&o.zone, "zone", "", "zone or rack of this server, for --column: it takes a row of the zone")
	flags.DurationVar(&o.rejoin, "rejoin", column.DefaultRejoin, "time for which the row of a stopped server is kept for its address, with --column")
	flags.DurationVar(&o.keepMoved, "keep-moved", column.DefaultKeepMoved, "time for which a shard that has moved to another column is still served, and its files are kept")
}

// maxZoneBytes bounds --zone.
const maxZoneBytes = 64

func (o *columnOptions) check(d *daemonOptions) error {
	var problems []error
	for _, one := range []struct {
		flag  string
		value time.Duration
	}{{"--rejoin", o.rejoin}, {"--keep-moved", o.keepMoved}} {
		if one.value <= 0 || one.value > column.MaxKeepMoved {
			problems = append(problems, cli.Usagef("%s %s: must be more than 0 and at most %s", one.flag, one.value, column.MaxKeepMoved))
		}
	}
	if len(o.zone) > maxZoneBytes {
		problems = append(problems, cli.Usagef("--zone: %d bytes: must have at most %d", len(o.zone), maxZoneBytes))
	}
	if o.column == "" {
		if o.zone != "" {
			problems = append(problems, cli.Usagef("--zone needs --column; give both"))
		}
		return errors.Join(problems...)
	}
	if err := etcdmap.CheckColumn(o.column); err != nil {
		problems = append(problems, cli.Usagef("--column: %w", err))
	}
	if d.buckets.etcd == "" {
		problems = append(problems, cli.Usagef("--column needs --etcd, which has the placement of the shards"))
	}
	if d.registration.discovery != "" {
		problems = append(problems, cli.Usagef("--column registers this server in the etcd of --etcd; leave out --discovery"))
	}
	for _, c := range d.collections {
		if !isURL(c.source) {
			problems = append(problems, cli.Usagef("--collection %s=%s: with --column, give the URL where the divided collection is published", c.name, c.source))
		}
	}
	return errors.Join(problems...)
}

// columns are the divided collections of a daemon.
type columns struct {
	sync.Mutex
	byName map[string]*columnOf
}

// columnOf is a divided collection of which this daemon holds a column.
type columnOf struct {
	*column.Column
	name   string
	bucket *bucket.Client
	feed   *follow.Feed
	store  *etcdmap.Store
	client *sharded.Client // for requests that are passed on
	peers  *peers.Client   // nil: that of the daemon
	opened chan struct{}   // closed when Column is set
}

// divisionTimeout bounds the time in which a daemon finds out at its first start that a
// collection is not divided.
const divisionTimeout = 5 * time.Second

// readyInterval is the interval at which a starting server checks whether its columns are
// ready.
const readyInterval = 50 * time.Millisecond

// addColumn begins to hold the shards of a collection.
func (d *daemon) addColumn(c collectionFlag, options *collection.Options) (err error) {
	b, watched, err := d.openBucket(c)
	if err != nil {
		return err
	}
	dir := filepath.Join(d.options.dataDir, c.name)
	if err := vfs.MakeDir(vfs.OS, dir); err != nil {
		return err
	}
	of := &columnOf{name: c.name, bucket: b, opened: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, of.close())
		}
	}()
	of.store, err = etcdmap.Open(d.options.buckets.etcd, c.name, &etcdmap.Options{File: column.MapFile(dir), Logger: d.env.Log})
	if err != nil {
		return err
	}
	if m, _ := of.store.Map(); m == nil {
		if err := requireDivided(watched, c.name); err != nil {
			return err
		}
	}
	of.feed = follow.OpenFeed(watched, &follow.FeedOptions{Logger: d.env.Log})
	pool, err := d.peerPool()
	if err != nil {
		return err
	}
	pool.BufferBytes = d.messages.Stats().Limit
	d.tracePool(&pool)
	of.client, err = sharded.NewClient(of.store, c.name, etcdclient.ClientOptions(of.store, &etcdclient.Options{Pool: pool, Logger: d.env.Log}))
	if err != nil {
		return err
	}
	address, err := d.options.registration.address(d.boxcarAddress())
	if err != nil {
		return err
	}
	source := d.peers
	if source == nil {
		of.peers = peers.NewClient(columnSource{of}, &peers.ClientOptions{Pool: pool, Self: address})
		source = of.peers
	}
	of.Column, err = column.Open(column.Options{
		Collection: c.name, Dir: dir, Column: d.options.columns.column, Zone: d.options.columns.zone,
		Server: discovery.Server{Address: address, Weight: d.options.registration.weight}, Page: d.pageURL(address),
		Store: of.store, Service: d.service, Disk: d.diskUse, Announced: of.announced,
		Rejoin: d.options.columns.rejoin, KeepMoved: d.options.columns.keepMoved, Logger: d.env.Log,
		Open: func(layout shard.Layout, i int, dir string, serve func(*collection.Collection)) (column.Follower, error) {
			o := d.followOptions(options)
			o.Shard = &follow.Shard{Feed: of.feed, Layout: layout, Number: i}
			name := shard.Name(c.name, i)
			o.Source = source.Source(name)
			f, err := follow.Open(name, watched, dir, serve, o)
			if err != nil {
				return nil, err
			}
			d.followers.set(name, &followed{Follower: f})
			return &shardFollower{f, d, name}, nil
		},
	})
	if err != nil {
		return err
	}
	close(of.opened)
	d.gateway.Add(c.name, of.client)
	d.columns.Lock()
	defer d.columns.Unlock()
	if d.columns.byName == nil {
		d.columns.byName = map[string]*columnOf{}
	}
	d.columns.byName[c.name] = of
	return nil
}

// requireDivided returns an error if the announced manifest is that of a collection that is
// not divided. It returns nil if the manifest cannot be read now.
func requireDivided(b bucket.Bucket, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), divisionTimeout)
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
	if err == nil && m.Layout == nil {
		return cli.Usagef("--column: collection %s is not divided into shards; leave out --column, or write it with docstore-updater append --shards", name)
	}
	return nil
}

// announced describes the announced manifest.
func (c *columnOf) announced(ctx context.Context) (column.Announced, error) {
	division, err := c.feed.Division(ctx)
	return column.Announced{Generation: division.Incarnation, Layout: division.Layout, Bytes: division.Bytes}, err
}

// close closes the parts that are open.
func (c *columnOf) close() error {
	var errs []error
	if c.Column != nil {
		errs = append(errs, c.Close())
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

// shardFollower is the follower of a shard. The status of the daemon finds it by its name.
type shardFollower struct {
	*follow.Follower
	daemon *daemon
	name   string
}

// Close implements column.Follower.
func (f *shardFollower) Close() error {
	f.daemon.followers.set(f.name, nil)
	return f.Follower.Close()
}

// columnSource is the source of the servers of the column that a daemon has joined.
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
	for s.of.Name() == "" {
		if !ctxtime.Sleep(ctx, nameWait) {
			return ctx.Err()
		}
	}
	registry, err := s.of.store.Column(s.of.Name())
	if err != nil {
		return err
	}
	return registry.Source(nil).Watch(ctx, update)
}

// diskUse returns the bytes that the data directory uses and may use.
func (d *daemon) diskUse() (used, limit int64, err error) {
	if d.disk != nil {
		used, err = d.disk.Used()
		return used, int64(d.options.buckets.maxDisk), err
	}
	if used, err = follow.NewDisk(d.options.dataDir, 0).Used(); err != nil {
		return 0, 0, err
	}
	free, err := vfs.OS.FreeBytes(d.options.dataDir)
	return used, used + free, err
}

// pageURL returns the URL of the status page for other machines.
func (d *daemon) pageURL(address string) string {
	host, port, err := net.SplitHostPort(d.httpAddress())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if host, _, err = net.SplitHostPort(address); err != nil {
			return ""
		}
	}
	return d.options.http.scheme(d.auth) + "://" + net.JoinHostPort(host, port)
}

// columnList returns the divided collections ordered by name.
func (d *daemon) columnList() []*columnOf {
	d.columns.Lock()
	defer d.columns.Unlock()
	return slices.SortedFunc(maps.Values(d.columns.byName), func(a, b *columnOf) int { return strings.Compare(a.name, b.name) })
}

// isShard reports whether a name is that of a shard: the names of collections have no slash.
func isShard(name string) bool { return strings.Contains(name, "/") }

// shardOf returns the shard of an id on this server, or why there is none.
func (d *daemon) shardOf(name, id string) (c *collection.Collection, problem string) {
	d.columns.Lock()
	of := d.columns.byName[name]
	d.columns.Unlock()
	if of == nil {
		return nil, "No such collection."
	}
	m, _ := of.store.Map()
	if m == nil {
		return nil, "The placement of the collection is not known yet."
	}
	i := m.Layout.ShardString(id)
	if c = d.collection(shard.Name(name, i)); c == nil {
		return nil, fmt.Sprintf("The document belongs to shard %d of column %s: look it up on one of its servers.", i, m.Shards[i].Column)
	}
	return c, ""
}

// drainUntilReady drains the server while it starts and its columns are not ready. Clients may
// know its address from before a restart: they use the other rows meanwhile.
func (d *daemon) drainUntilReady() {
	ready := func() bool {
		return !slices.ContainsFunc(d.columnList(), func(of *columnOf) bool { return of.Status().NotReady != "" })
	}
	if ready() {
		return
	}
	d.boxcar.Drain()
	d.serving.Go(func() {
		for !ready() {
			if !ctxtime.Sleep(d.alive, readyInterval) {
				return
			}
		}
		if !d.ending.Load() {
			d.boxcar.Undrain()
		}
	})
}

// leaveColumns ends the membership in all columns, so that no new requests come.
func (d *daemon) leaveColumns() {
	var leaving sync.WaitGroup
	for _, c := range d.columnList() {
		leaving.Go(c.Leave)
	}
	leaving.Wait()
}

// columnReadiness describes a divided collection: it is ready when the shards that the
// placement assigned to the column at the start are.
func columnReadiness(s column.Status) collectionReadiness {
	return collectionReadiness{Ready: s.NotReady == "", Reason: s.NotReady, Faults: []livepage.Fault{}}
}

// columnStatus describes a divided collection on the page.
func (d *daemon) columnStatus(c *columnOf) livepage.Column {
	s := c.Status()
	states := countStates(s)
	return livepage.Column{
		Collection: c.name, Column: s.Column, Row: s.Row, Zone: d.options.columns.zone, Ready: s.NotReady == "", Reason: s.NotReady, Epoch: s.Epoch,
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
	shardsHeld     = gauge("shards", "Shards on this server, by state: fetching, serving, moved to another column but still served, or failed.", "collection", "state")
	placementEpoch = gauge("placement_epoch", "Epoch of the placement that this server follows; 0: none is known.", "collection")
	placementMoves = gauge("placement_moves", "Shards of the collection that are moving to another column.", "collection")
	columnRow      = gauge("column_row", "Row of this server in its column; -1: it has held none yet.", "collection", "column")
	forwards       = counter("forwarded_total", "Requests over HTTP and gRPC passed on to other columns, by outcome; refused ones were above the limit.", "outcome")
)

// columnCollector collects the metrics of divided collections.
type columnCollector struct{ *daemon }

func (c columnCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{shardsHeld, placementEpoch, placementMoves, columnRow, forwards} {
		to <- m.desc
	}
}

func (c columnCollector) Collect(to chan<- prometheus.Metric) {
	list := c.columnList()
	for _, of := range list {
		s := of.Status()
		for state, n := range countStates(s) {
			shardsHeld.send(to, float64(n), of.name, string(state))
		}
		placementEpoch.send(to, float64(s.Epoch), of.name)
		columnRow.send(to, float64(s.Row), of.name, s.Column)
		moves := 0
		if m, _ := of.store.Map(); m != nil {
			for _, p := range m.Shards {
				if p.Next != "" {
					moves++
				}
			}
		}
		placementMoves.send(to, float64(moves), of.name)
		collectBucket(to, of.name, of.bucket)
	}
	if len(list) > 0 {
		s := c.gateway.Stats()
		forwards.send(to, float64(s.Forwarded-s.Failed), "answered")
		forwards.send(to, float64(s.Failed), "failed")
		forwards.send(to, float64(s.Refused), "refused")
	}
}
