package bucketsource

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/docservice/server"
	"docstore/docservice/server/internal/metric"
	"docstore/docservice/server/livepage"
	"docstore/internal/contact"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/publish/etcdlog"
)

// limitDownloads applies the limits for all followers.
func (s *Source) limitDownloads() {
	if s.downloads = limiterOf(s.options.DownloadRate); s.options.MaxDisk > 0 {
		s.disk = follow.NewDisk(s.Options().Host.FS, s.DataDir(), s.options.MaxDisk)
	}
}

// followed is a collection that is fetched from an object store.
type followed struct {
	*follow.Follower
	source *Source
	name   string
	bucket *storeClient
}

// storeClient is the client of the bucket of a collection.
type storeClient struct {
	*bucket.Client
	contact *contact.Contact // with the store
}

// openFollower opens a collection of a bucket and serves it.
func (s *Source) openFollower(c server.Collection, options *collection.Options) (server.Held, error) {
	b, watched, err := s.openBucket(c)
	if err != nil {
		return nil, err
	}
	o := s.followOptions(options, b)
	if s.peers != nil {
		o.Source = s.peers.Source(c.Name)
	}
	f, err := follow.Open(c.Name, watched, filepath.Join(s.DataDir(), c.Name), s.Service().Replace, o)
	if err != nil {
		return nil, err
	}
	s.setFollower(c.Name, f)
	held := &followed{f, s, c.Name, b}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.held = append(s.mu.held, held)
	return held, nil
}

// Name is part of server.Held.
func (f *followed) Name() string { return f.name }

// collection returns the served collection: another one after each manifest that does not
// extend the last.
func (f *followed) collection() *collection.Collection { return f.source.Collection(f.name) }

// Shards is part of server.Held.
func (f *followed) Shards() []server.Shard {
	return []server.Shard{shardOf(f.collection(), f.Follower)}
}

// Column is part of server.Held: Boxcar clients find the server when it is ready.
func (f *followed) Column() *livepage.Column { return nil }

// Lookup is part of server.Held.
func (f *followed) Lookup(string) (*collection.Collection, string) { return f.collection(), "" }

// Lister is part of server.Held.
func (f *followed) Lister() server.Lister { return f.collection() }

// Close is part of server.Held.
func (f *followed) Close() error {
	err := f.Follower.Close()
	f.bucket.CloseIdle()
	return err
}

// shardOf returns a served shard with its follower.
func shardOf(c *collection.Collection, f *follow.Follower) server.Shard {
	status := f.Status()
	return server.Shard{Collection: c, Files: status.Files, Manifest: manifestStatus(status)}
}

// followOptions returns the options of a follower of a bucket.
func (s *Source) followOptions(options *collection.Options, b *storeClient) *follow.Options {
	return &follow.Options{
		Collection: *options, Group: s.options.Group, Logger: s.Logger(), Problem: b.contact.Problem,
		Rate: s.downloads, Concurrency: s.options.Downloads, Disk: s.disk, MaxStaleness: s.Options().MaxStaleness,
	}
}

// openBucket opens the bucket of a collection. watched is the bucket as it is followed:
// etcd announces its changes if the server has one.
func (s *Source) openBucket(c server.Collection) (_ *storeClient, watched bucket.Bucket, _ error) {
	store, options := contact.New("the object store", s.Logger().With("collection", c.Name)), s.options.Store
	options.Observe = store.Observe
	b, err := s.options.OpenBucket(context.Background(), c.Source, options)
	if errors.Is(err, bucket.ErrURL) {
		return nil, nil, optionErrorf("--collection %s=%s: %w", c.Name, c.Source, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("collection %s: %w", c.Name, err)
	}
	if watched, err = s.watched(b); err != nil {
		return nil, nil, err
	}
	return &storeClient{b, store}, watched, nil
}

// watched returns a bucket whose changes the etcd of --etcd reports.
func (s *Source) watched(b bucket.Bucket) (bucket.Bucket, error) {
	endpoints := s.options.Etcd
	if endpoints == "" {
		return b, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.etcd == nil {
		etcd, err := etcdlog.Open(endpoints, &etcdlog.Options{Dial: s.Options().Host.Dial, Observe: s.etcd.Observe})
		if err != nil {
			return nil, fmt.Errorf("--etcd: %w", err)
		}
		s.mu.etcd = etcd
	}
	return publish.WithArbiter(b, s.mu.etcd), nil
}

// manifestStatus describes the manifest that a collection serves.
func manifestStatus(s follow.Status) *livepage.Manifest {
	m := &livepage.Manifest{
		Announced: s.Announced, Target: s.Target, Served: s.Served, Increment: s.Increment, Held: s.Held, Frozen: s.Frozen,
		FetchedBytes: s.FetchedBytes, FetchBytes: s.FetchBytes, FetchRate: s.FetchRate,
		PeerBytes: s.PeerBytes, BucketBytes: s.BucketBytes,
		Behind: s.Lag.Seconds(), Error: s.Error, LastContact: livepage.TimeOrNil(s.LastContact),
	}
	if s.Pin != nil {
		m.PinnedBy, m.PinReason, m.PinnedAt = s.Pin.By, s.Pin.Reason, livepage.TimeOrNil(s.Pin.Time)
	}
	return m
}

var (
	manifestNumber = metric.Gauge("manifest", "Number of the announced, target and served manifest of a collection in an object store.", "collection", "state")
	manifestPinned = metric.Gauge("manifest_pinned", "1 while a pin determines the served manifest.", "collection")
	manifestHeld   = metric.Gauge("manifest_held", "1 while append --announce does not announce, because its records were outside the bounds.", "collection")
	manifestError  = metric.Gauge("manifest_error", "1 while the last attempt to follow the manifests or to add increments failed; see the log.", "collection")
	manifestAge    = metric.Gauge("manifest_last_contact_seconds", "Time since the state of a collection in an object store was last read.", "collection")
	manifestLag    = metric.Gauge("manifest_lag_seconds", "Time for which the target, a manifest with its announced increments, has not been served; 0: it is served.", "collection")
	fetchBytes     = metric.Gauge("manifest_fetch_bytes", "Bytes of the fetch in progress, in all and already fetched.", "collection", "state")
	fetchedBytes   = metric.Counter("manifest_fetched_bytes_total", "Bytes of files fetched, by source: peer or bucket.", "collection", "source")
	bucketRequests = metric.Counter("bucket_requests_total", "Requests to the object store.", "collection", "operation")
	bucketRetries  = metric.Counter("bucket_retries_total", "Repeated requests to the object store.", "collection", "operation")
	bucketFailures = metric.Counter("bucket_failures_total", "Failed operations on the object store, after all attempts.", "collection", "operation")
	bucketBytes    = metric.Counter("bucket_bytes_total", "Bytes of objects transferred.", "collection", "operation")
	diskUsed       = metric.Gauge("data_bytes", "Bytes of the files in --data, with --max-disk.")
)

// bucketCollector collects the metrics of collections in an object store.
type bucketCollector struct{ *Source }

func (c bucketCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric.Metric{manifestNumber, manifestPinned, manifestHeld, manifestError, manifestAge, manifestLag, fetchBytes, fetchedBytes, diskUsed, bucketRequests, bucketRetries, bucketFailures, bucketBytes} {
		to <- m.Desc
	}
}

func (c bucketCollector) Collect(to chan<- prometheus.Metric) {
	for _, one := range c.Collections() {
		name := one.Name()
		f := c.follower(name)
		if f == nil {
			continue
		}
		s := f.Status()
		manifestNumber.Send(to, float64(s.Announced), name, "announced")
		manifestNumber.Send(to, float64(s.Target), name, "target")
		manifestNumber.Send(to, float64(s.Served), name, "served")
		manifestPinned.Send(to, metric.Bool(s.Pin != nil), name)
		manifestHeld.Send(to, metric.Bool(s.Held != ""), name)
		manifestError.Send(to, metric.Bool(s.Error != ""), name)
		manifestAge.Send(to, max(0, c.Options().Host.Now().Sub(s.Contact()).Seconds()), name)
		manifestLag.Send(to, s.Lag.Seconds(), name)
		fetchBytes.Send(to, float64(s.FetchBytes), name, "total")
		fetchBytes.Send(to, float64(s.FetchedBytes), name, "fetched")
		fetchedBytes.Send(to, float64(s.PeerBytes), name, "peer")
		fetchedBytes.Send(to, float64(s.BucketBytes), name, "bucket")
	}
	c.mu.Lock()
	held := slices.Clone(c.mu.held)
	c.mu.Unlock()
	for _, f := range held {
		collectBucket(to, f.name, f.bucket)
	}
	if c.disk != nil {
		c.sampler.Collect(to, "", func(to chan<- prometheus.Metric) {
			if used, err := c.disk.Used(); err == nil {
				diskUsed.Send(to, float64(used))
			}
		})
	}
}

func collectBucket(to chan<- prometheus.Metric, name string, b *storeClient) {
	for _, o := range b.Stats().Operations {
		bucketRequests.Send(to, float64(o.Requests), name, o.Operation)
		bucketRetries.Send(to, float64(o.Retries), name, o.Operation)
		bucketFailures.Send(to, float64(o.Failures), name, o.Operation)
		bucketBytes.Send(to, float64(o.Bytes), name, o.Operation)
	}
}
