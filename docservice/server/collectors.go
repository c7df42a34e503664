package server

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/docservice/collection"
	"docstore/docservice/server/internal/metric"
	"docstore/internal/canary"
	"docstore/internal/vfs"
	"docstore/lsm"
)

var (
	served      = metric.Counter("documents_served_total", "Requested ids by answer.", "collection", "answer")
	ready       = metric.Gauge("collection_ready", "1 if the server is ready for the collection, or for a shard, as /readyz says.", "collection")
	stateOf     = metric.Gauge("collection_state", "1 for the state of the collection, or of a shard, a second ago at most.", "collection", "state")
	lagSeconds  = metric.Gauge("tail_lag_seconds", "Maximum age of the entries that are not in the index yet.", "collection")
	lagBytes    = metric.Gauge("tail_lag_bytes", "Bytes of the queue here that are not in the index yet.", "collection")
	applied     = metric.Counter("tail_entries_total", "Entries of the queue applied to the index.", "collection")
	segmentAt   = metric.Gauge("tail_position_segment", "Segment of the tail's position.", "collection")
	blockAt     = metric.Gauge("tail_position_block_offset", "Block offset of the tail's position in that segment.", "collection")
	faults      = metric.Gauge("faults", "Damage found in files here and not repaired yet, and an index that cannot be written.", "collection", "effect")
	faultInfo   = metric.Gauge("fault_info", "Always 1 for each fault, at most 128 per collection.", "collection", "segment", "offset", "path", "reason", "effect")
	quarantined = metric.Counter("files_quarantined_total", "Damaged segment files renamed so that they are copied again.", "collection")
	swept       = metric.Counter("index_expired_entries_removed_total", "Entries of expired documents that the sweep removed from the index.", "collection")
	scrubbed    = metric.Counter("index_scrubbed_bytes_total", "Bytes of the index verified by the scrub.", "collection")
	scrubEnded  = metric.Gauge("index_scrub_ended_timestamp_seconds", "Unix time when the scrub last completed the index; 0: not since the start.", "collection")
	segments    = metric.Gauge("queue_segments", "Segments of the queue here.", "collection")
	queueBytes  = metric.Gauge("queue_bytes", "Their size.", "collection")
	queueDocs   = metric.Gauge("queue_documents", "Documents in them, superseded versions included.", "collection")
	queueDels   = metric.Gauge("queue_deletes", "Deletes in them.", "collection")
)

var (
	indexTables     = metric.Gauge("index_tables", "Tables of the index.", "collection")
	indexTableBytes = metric.Gauge("index_table_bytes", "Their size.", "collection")
	indexEntries    = metric.Gauge("index_entries", "Entries in tables; an id counts once for each table that has it.", "collection")
	indexLogBytes   = metric.Gauge("index_log_bytes", "Bytes of the logs of entries not in tables yet.", "collection")
	memtableBytes   = metric.Gauge("index_memtable_bytes", "Memory of memtables.", "collection")
	filterBytes     = metric.Gauge("index_filter_resident_bytes", "Memory of Bloom filters.", "collection")
	flushes         = metric.Counter("index_flushes_total", "Memtables written to tables.", "collection")
	merges          = metric.Counter("index_merges_total", "Merges of tables.", "collection")
	mergeBytes      = metric.Counter("index_merge_bytes_total", "Bytes written by merges.", "collection")
	writesStopped   = metric.Counter("index_writes_stopped_seconds_total", "Time the tail waited for flushes and merges of the index.", "collection")
	diskFree        = metric.Gauge("disk_free_bytes", "Free space of the file systems of queue and index.", "collection", "part")
	diskSize        = metric.Gauge("disk_bytes", "Size of the file systems of queue and index.", "collection", "part")
	inodesFree      = metric.Gauge("inodes_free", "Free inodes of the file systems of queue and index, if they limit them.", "collection", "part")
	indexProblem    = metric.Gauge("index_problem", "1 while the last flush, merge or write failed; see the log.", "collection")
)

var (
	residentRatio = metric.Gauge("resident_ratio", "Share of the mapped files that is in memory, by a sample; 1 if the daemon may not write the files.", "collection", "part")
	freshness     = prometheus.NewDesc("docstore_freshness_seconds", "Time from the append of new entries to the queue until they are served here, by the clocks of both machines; of each batch the oldest.", []string{"collection"}, nil)
	canarySeconds = prometheus.NewDesc("docstore_canary_seconds", "Time from the event at the source until a canary of append is served here, by the clocks of the machines.", []string{"collection"}, nil)
	coldReads     = prometheus.NewDesc("docstore_cold_read_seconds", "Duration of lookups and reads that waited for the disk; a batch counts once.", []string{"collection", "part"}, nil)
)

var canaryAge = metric.Gauge("canary_age_seconds", "Time since the newest canary that is served here was appended; without a canary of the last day there is none.", "collection")

var metricsAge = metric.Gauge("metrics_age_seconds", "Age of the metrics of a collection; above a few seconds, its disk does not answer.", "collection")

// collectionCollector collects the metrics of the collections, each in a sample of its own: the disk
// of one may hang.
type collectionCollector struct {
	*Server
	sampler *metric.Sampler
}

func (c collectionCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric.Metric{
		served, ready, stateOf, lagSeconds, lagBytes, applied, segmentAt, blockAt, faults, faultInfo, quarantined, swept, scrubbed, scrubEnded,
		segments, queueBytes, queueDocs, queueDels,
		indexTables, indexTableBytes, indexEntries, indexLogBytes, memtableBytes, filterBytes, flushes, merges, mergeBytes,
		writesStopped, diskFree, diskSize, inodesFree, indexProblem, residentRatio, canaryAge,
	} {
		to <- m.Desc
	}
	to <- freshness
	to <- canarySeconds
	to <- coldReads
	to <- metricsAge.Desc
}

func (c collectionCollector) Collect(to chan<- prometheus.Metric) {
	for _, h := range c.Held() {
		collectReadiness(to, h)
	}
	for name, state := range c.states.all() {
		stateOf.Send(to, 1, name, string(state))
	}
	var sampling sync.WaitGroup
	for _, one := range c.Collections() {
		sampling.Go(func() {
			age := c.sampler.Collect(to, one.Name(), func(to chan<- prometheus.Metric) { c.collect(to, one) })
			metricsAge.Send(to, age.Seconds(), one.Name())
		})
	}
	sampling.Wait()
}

// collect sends the metrics of a collection. It reads the disk.
func (c collectionCollector) collect(to chan<- prometheus.Metric, one *collection.Collection) {
	name := one.Name()
	collectStatus(to, name, one.Status())
	collectResidency(to, name, one)
	c.collectDisk(to, one)
	stats, err := one.Stats()
	if err != nil {
		c.options.Logger.Warn("statistics are missing from the metrics", "collection", name, "error", err)
		return
	}
	segments.Send(to, float64(stats.Segments), name)
	queueBytes.Send(to, float64(stats.SegmentBytes), name)
	queueDocs.Send(to, float64(stats.SegmentDocuments), name)
	queueDels.Send(to, float64(stats.SegmentDeletes), name)
	collectIndex(to, name, stats.Index)
}

// collectDisk sends the free space of the collection's file systems.
func (c collectionCollector) collectDisk(to chan<- prometheus.Metric, one *collection.Collection) {
	for part, dir := range one.Dirs() {
		if free, err := c.options.Host.FS.Free(dir); err == nil { // an error is reported elsewhere
			diskFree.Send(to, float64(free.Bytes), one.Name(), part)
			diskSize.Send(to, float64(free.Size), one.Name(), part)
			if free.Inodes != vfs.NoInodeLimit {
				inodesFree.Send(to, float64(free.Inodes), one.Name(), part)
			}
		}
	}
}

// collectReadiness sends whether a collection is ready, as /readyz says, and of a replica set whether
// the served shards are.
func collectReadiness(to chan<- prometheus.Metric, h Held) {
	ready.Send(to, metric.Bool(isReady(h)), h.Name())
	if h.Column() == nil {
		return
	}
	for _, s := range h.Shards() {
		ready.Send(to, metric.Bool(s.IsReady()), s.Name())
	}
}

func collectStatus(to chan<- prometheus.Metric, name string, status collection.Status) {
	served.Send(to, float64(status.Gets.Found), name, "found")
	served.Send(to, float64(status.Gets.NotFound), name, "not_found")
	served.Send(to, float64(status.Gets.Unavailable), name, "unavailable")
	served.Send(to, float64(status.Gets.Failed), name, "error")
	lagSeconds.Send(to, status.Lag.Seconds(), name)
	lagBytes.Send(to, float64(status.LagBytes()), name)
	applied.Send(to, float64(status.Applied), name)
	fresh := &status.Freshness
	to <- prometheus.MustNewConstHistogram(freshness, fresh.Count, fresh.Sum.Seconds(), fresh.Cumulative(), name)
	canaries := &status.Canaries
	to <- prometheus.MustNewConstHistogram(canarySeconds, canaries.Count, canaries.Sum.Seconds(), canaries.Cumulative(), name)
	if age := time.Since(status.CanarySent); age < canary.Life { // else append has been without for long
		canaryAge.Send(to, max(0, age).Seconds(), name)
	}
	segmentAt.Send(to, float64(status.Position.Next.Segment), name)
	blockAt.Send(to, float64(status.Position.Next.Block), name)

	quarantined.Send(to, float64(status.Quarantined), name)
	swept.Send(to, float64(status.Swept), name)
	scrubbed.Send(to, float64(status.Scrub.Bytes), name)
	ended := 0.0
	if !status.Scrub.Ended.IsZero() {
		ended = float64(status.Scrub.Ended.UnixMilli()) / 1000
	}
	scrubEnded.Send(to, ended, name)

	effects := map[string]int{"tail_stopped": 0, "index_unwritten": 0, "documents_unavailable": status.MoreFaults}
	for _, f := range status.Faults {
		effect := "documents_unavailable"
		switch {
		case f.IndexUnwritten:
			effect = "index_unwritten"
		case f.StopsTail:
			effect = "tail_stopped"
		}
		effects[effect]++
		faultInfo.Send(to, 1, name, strconv.FormatUint(uint64(f.Segment), 10), strconv.FormatInt(f.Offset, 10), strings.ToValidUTF8(f.Path, "?"), strings.ToValidUTF8(f.Reason, "?"), effect)
	}
	for effect, count := range effects {
		faults.Send(to, float64(count), name, effect)
	}
}

// collectResidency sends only known values.
func collectResidency(to chan<- prometheus.Metric, name string, c *collection.Collection) {
	residency := c.Residency()
	index, queue, measured := c.ColdReads()
	send := func(part string, of collection.PartResidency, cold *collection.ColdReads) {
		if of.MappedBytes > 0 {
			residentRatio.Send(to, of.Share, name, part)
		}
		if measured {
			to <- prometheus.MustNewConstHistogram(coldReads, cold.Count, cold.Sum.Seconds(), cold.Cumulative(), name, part)
		}
	}
	send("index", residency.Index, &index)
	send("queue", residency.Segments, &queue)
}

func collectIndex(to chan<- prometheus.Metric, name string, index lsm.Stats) {
	var bytes, entries uint64
	for _, table := range index.Tables {
		bytes += table.Bytes
		entries += table.Entries
	}
	indexTables.Send(to, float64(len(index.Tables)), name)
	indexTableBytes.Send(to, float64(bytes), name)
	indexEntries.Send(to, float64(entries), name)
	indexLogBytes.Send(to, float64(index.LogBytes), name)
	memtableBytes.Send(to, float64(index.MemtableBytes), name)
	filterBytes.Send(to, float64(index.Filter.ResidentBytes), name)
	flushes.Send(to, float64(index.Writes.Flushes), name)
	merges.Send(to, float64(index.Writes.Merges), name)
	mergeBytes.Send(to, float64(index.Writes.MergeBytes), name)
	writesStopped.Send(to, index.Writes.StallTime.Seconds(), name)
	indexProblem.Send(to, metric.Bool(index.Problem != nil), name)
}

var (
	cacheServers = metric.Gauge("memcached_servers", "Memcached servers by state.", "state")
	cacheAsked   = metric.Counter("memcached_asked_total", "Documents requested from Memcached, by answer; wrong ones were read from the segments instead.", "answer")
	cacheLoads   = metric.Counter("memcached_loads_total", "Documents to be stored in Memcached, by outcome.", "outcome")
)

// cacheCollector collects the metrics of the cache.
type cacheCollector struct{ *Server }

func (c cacheCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric.Metric{cacheServers, cacheAsked, cacheLoads} {
		to <- m.Desc
	}
}

func (c cacheCollector) Collect(to chan<- prometheus.Metric) {
	if c.collections.Cache == nil {
		return
	}
	stats := c.collections.Cache.Stats()
	cacheServers.Send(to, float64(stats.ServersUp), "up")
	cacheServers.Send(to, float64(stats.Servers-stats.ServersUp), "away")
	cacheAsked.Send(to, float64(stats.Hits), "hit")
	cacheAsked.Send(to, float64(stats.Misses), "miss")
	cacheAsked.Send(to, float64(stats.Wrong), "wrong")
	cacheLoads.Send(to, float64(stats.Loaded), "loaded")
	cacheLoads.Send(to, float64(stats.Dropped), "dropped")
	cacheLoads.Send(to, float64(stats.Refused), "refused")
}
