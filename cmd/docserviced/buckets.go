package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/livepage"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/publish/etcdlog"
)

// bucketOptions configure collections that are fetched from an object store.
type bucketOptions struct {
	group       string
	store       bucket.Options
	maxDisk     cli.Size // bytes; 0: no limit
	rate        cli.Size // bytes per second; 0: no limit
	concurrency int
	etcd        string
}

func (o *bucketOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.group, "group", "", "group of this server, for docstore-updater pin --group")
	flags.StringVar(&o.store.Endpoint, "s3-endpoint", "", "URL of an S3-compatible store other than AWS")
	flags.StringVar(&o.etcd, "etcd", "", "etcd that reports changes of collections in an object store at once: "+
		"HOST:PORT[,...] or etcd://HOST:PORT[,...]/PREFIX[?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE]")
	flags.BoolVar(&o.store.PathStyle, "s3-path-style", false, "put the bucket's name into the path of requests")
	flags.Var(&o.maxDisk, "max-disk", "maximum size of --data, with checkpoints and downloads; a manifest that does not fit is not fetched; 0: no limit")
	flags.Var(&o.rate, "download-rate", "maximum bytes per second that are fetched from the object store and from peers; 0: no limit")
	flags.IntVar(&o.concurrency, "downloads", publish.DefaultConcurrency, "maximum files of a collection that are fetched at the same time")
}

func (o *bucketOptions) check() error {
	if o.concurrency < 1 || o.concurrency > maxDownloads {
		return cli.Usagef("--downloads %d: must be between 1 and %d", o.concurrency, maxDownloads)
	}
	if o.etcd == "" {
		return nil
	}
	if err := etcdlog.Check(o.etcd); err != nil {
		return cli.Usagef("--etcd: %w", err)
	}
	return nil
}

// maxDownloads bounds --downloads.
const maxDownloads = 1000

// limitDownloads applies the limits for all followers.
func (d *daemon) limitDownloads() {
	o := &d.options.buckets
	if d.downloads = limiterOf(o.rate); o.maxDisk > 0 {
		d.disk = follow.NewDisk(d.options.dataDir, int64(o.maxDisk))
	}
}

// isURL reports whether the value of --collection names a bucket.
func isURL(source string) bool { return strings.Contains(source, "://") }

// followers are the collections of a daemon that are fetched from an object store.
type followers struct {
	sync.Mutex
	byName map[string]*followed
	etcd   *etcdlog.Arbiter // of all collections; nil: not opened
}

// followed is such a collection.
type followed struct {
	*follow.Follower
	bucket *bucket.Client // nil: that of the columnOf of the shard
}

// addFollower opens a collection of a bucket and serves it.
func (d *daemon) addFollower(c collectionFlag, options *collection.Options) error {
	b, watched, err := d.openBucket(c)
	if err != nil {
		return err
	}
	o := d.followOptions(options)
	if d.peers != nil {
		o.Source = d.peers.Source(c.name)
	}
	f, err := follow.Open(c.name, watched, filepath.Join(d.options.dataDir, c.name), d.service.Replace, o)
	if err != nil {
		return err
	}
	d.followers.set(c.name, &followed{f, b})
	return nil
}

// followOptions returns the options of a follower.
func (d *daemon) followOptions(options *collection.Options) *follow.Options {
	return &follow.Options{
		Collection: *options, Group: d.options.buckets.group, Logger: d.env.Log,
		Rate: d.downloads, Concurrency: d.options.buckets.concurrency, Disk: d.disk, MaxStaleness: d.options.maxStaleness,
	}
}

// set records the follower of a collection; nil removes it.
func (s *followers) set(name string, f *followed) {
	s.Lock()
	defer s.Unlock()
	if s.byName == nil {
		s.byName = make(map[string]*followed)
	}
	if s.byName[name] = f; f == nil {
		delete(s.byName, name)
	}
}

// openBucket opens the bucket of a collection. watched is the bucket as it is followed:
// etcd announces its changes if the daemon has one.
func (d *daemon) openBucket(c collectionFlag) (_ *bucket.Client, watched bucket.Bucket, _ error) {
	b, err := bucket.Open(context.Background(), c.source, d.options.buckets.store)
	if errors.Is(err, bucket.ErrURL) {
		return nil, nil, cli.Usagef("--collection %s=%s: %w", c.name, c.source, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("collection %s: %w", c.name, err)
	}
	if watched, err = d.watched(b); err != nil {
		return nil, nil, err
	}
	return b, watched, nil
}

// watched returns a bucket whose changes the etcd of --etcd reports.
func (d *daemon) watched(b bucket.Bucket) (bucket.Bucket, error) {
	endpoints := d.options.buckets.etcd
	if endpoints == "" {
		return b, nil
	}
	d.followers.Lock()
	defer d.followers.Unlock()
	if d.followers.etcd == nil {
		etcd, err := etcdlog.Open(endpoints, nil)
		if err != nil {
			return nil, cli.Usagef("--etcd: %w", err)
		}
		d.followers.etcd = etcd
	}
	return publish.WithArbiter(b, d.followers.etcd), nil
}

// follower returns the follower of a collection, nil if it has a local queue.
func (d *daemon) follower(name string) *followed {
	d.followers.Lock()
	defer d.followers.Unlock()
	return d.followers.byName[name]
}

// closeFollowers closes the followers and their collections.
func (d *daemon) closeFollowers() (errs []error) {
	d.followers.Lock()
	defer d.followers.Unlock()
	for _, f := range d.followers.byName {
		errs = append(errs, f.Close())
		f.bucket.CloseIdle()
	}
	if d.followers.etcd != nil {
		errs = append(errs, d.followers.etcd.Close())
	}
	return errs
}

// manifestStatus describes the manifest that a collection serves, nil if it has a local
// queue.
func (d *daemon) manifestStatus(name string) *livepage.Manifest {
	f := d.follower(name)
	if f == nil {
		return nil
	}
	s := f.Status()
	m := &livepage.Manifest{
		Announced: s.Announced, Target: s.Target, Served: s.Served, Increment: s.Increment, Held: s.Held,
		FetchedBytes: s.FetchedBytes, FetchBytes: s.FetchBytes, FetchRate: s.FetchRate,
		PeerBytes: s.PeerBytes, BucketBytes: s.BucketBytes,
		Behind: lagOf(s), Error: s.Error, LastContact: timeOrNil(s.LastContact),
	}
	if s.Pin != nil {
		m.PinnedBy, m.PinReason, m.PinnedAt = s.Pin.By, s.Pin.Reason, timeOrNil(s.Pin.Time)
	}
	return m
}

// lagOf returns the seconds for which the target has not been served.
func lagOf(s follow.Status) float64 {
	if s.Behind.IsZero() {
		return 0
	}
	return time.Since(s.Behind).Seconds()
}

var (
	manifestNumber = gauge("manifest", "Number of the announced, target and served manifest of a collection in an object store.", "collection", "state")
	manifestPinned = gauge("manifest_pinned", "1 while a pin determines the served manifest.", "collection")
	manifestHeld   = gauge("manifest_held", "1 while append --announce does not announce, because its records were outside the bounds.", "collection")
	manifestError  = gauge("manifest_error", "1 while the last attempt to follow the manifests failed; see the log.", "collection")
	manifestLag    = gauge("manifest_lag_seconds", "Time for which the target manifest has not been served; 0: it is served.", "collection")
	fetchBytes     = gauge("manifest_fetch_bytes", "Bytes of the fetch in progress, in all and already fetched.", "collection", "state")
	fetchedBytes   = counter("manifest_fetched_bytes_total", "Bytes of files fetched, by source: peer or bucket.", "collection", "source")
	bucketRequests = counter("bucket_requests_total", "Requests to the object store.", "collection", "operation")
	bucketRetries  = counter("bucket_retries_total", "Repeated requests to the object store.", "collection", "operation")
	bucketFailures = counter("bucket_failures_total", "Failed operations on the object store, after all attempts.", "collection", "operation")
	bucketBytes    = counter("bucket_bytes_total", "Bytes of objects transferred.", "collection", "operation")
	diskUsed       = gauge("data_bytes", "Bytes of the files in --data, with --max-disk.")
)

// bucketCollector collects the metrics of collections in an object store.
type bucketCollector struct{ *daemon }

func (c bucketCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{manifestNumber, manifestPinned, manifestHeld, manifestError, manifestLag, fetchBytes, fetchedBytes, diskUsed, bucketRequests, bucketRetries, bucketFailures, bucketBytes} {
		to <- m.desc
	}
}

func (c bucketCollector) Collect(to chan<- prometheus.Metric) {
	for _, collection := range c.collections() {
		name := collection.Name()
		f := c.follower(name)
		if f == nil {
			continue
		}
		s := f.Status()
		manifestNumber.send(to, float64(s.Announced), name, "announced")
		manifestNumber.send(to, float64(s.Target), name, "target")
		manifestNumber.send(to, float64(s.Served), name, "served")
		manifestPinned.send(to, boolValue(s.Pin != nil), name)
		manifestHeld.send(to, boolValue(s.Held != ""), name)
		manifestError.send(to, boolValue(s.Error != ""), name)
		manifestLag.send(to, lagOf(s), name)
		fetchBytes.send(to, float64(s.FetchBytes), name, "total")
		fetchBytes.send(to, float64(s.FetchedBytes), name, "fetched")
		fetchedBytes.send(to, float64(s.PeerBytes), name, "peer")
		fetchedBytes.send(to, float64(s.BucketBytes), name, "bucket")
		if f.bucket != nil {
			collectBucket(to, name, f.bucket)
		}
	}
	if c.disk == nil {
		return
	}
	if used, err := c.disk.Used(); err == nil {
		diskUsed.send(to, float64(used))
	}
}

func collectBucket(to chan<- prometheus.Metric, name string, b *bucket.Client) {
	for _, o := range b.Stats().Operations {
		bucketRequests.send(to, float64(o.Requests), name, o.Operation)
		bucketRetries.send(to, float64(o.Retries), name, o.Operation)
		bucketFailures.send(to, float64(o.Failures), name, o.Operation)
		bucketBytes.send(to, float64(o.Bytes), name, o.Operation)
	}
}
