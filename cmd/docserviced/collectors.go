package main

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/docservice/collection"
	"docstore/internal/vfs"
	"docstore/lsm"
)

// metric describes one number of a collector.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("docstore_"+name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("docstore_"+name, help, labels, nil), prometheus.GaugeValue}
}

func (m metric) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var (
	served      = counter("documents_served_total", "Requested ids by answer.", "collection", "answer")
	ready       = gauge("collection_ready", "1 if the queue has been read to its end and reading has not stopped since.", "collection")
	lagSeconds  = gauge("tail_lag_seconds", "Maximum age of the entries that are not in the index yet.", "collection")
	lagBytes    = gauge("tail_lag_bytes", "Bytes of the queue here that are not in the index yet.", "collection")
	applied     = counter("tail_entries_total", "Entries of the queue applied to the index.", "collection")
	segmentAt   = gauge("tail_position_segment", "Segment of the tail's position.", "collection")
	blockAt     = gauge("tail_position_block_offset", "Block offset of the tail's position in that segment.", "collection")
	faults      = gauge("faults", "Damage found in files here and not repaired yet.", "collection", "effect")
	faultInfo   = gauge("fault_info", "Always 1 for each fault, at most 128 per collection.", "collection", "segment", "offset", "path", "reason", "effect")
	quarantined = counter("files_quarantined_total", "Damaged segment files renamed so that they are copied again.", "collection")
	swept       = counter("index_expired_entries_removed_total", "Entries of expired documents that the sweep removed from the index.", "collection")
	scrubbed    = counter("index_scrubbed_bytes_total", "Bytes of the index verified by the scrub.", "collection")
	scrubEnded  = gauge("index_scrub_ended_timestamp_seconds", "Unix time when the scrub last completed the index; 0: not since the start.", "collection")
	segments    = gauge("queue_segments", "Segments of the queue here.", "collection")
	queueBytes  = gauge("queue_bytes", "Their size.", "collection")
	queueDocs   = gauge("queue_documents", "Documents in them, superseded versions included.", "collection")
	queueDels   = gauge("queue_deletes", "Deletes in them.", "collection")
)

var (
	indexTables     = gauge("index_tables", "Tables of the index.", "collection")
	indexTableBytes = gauge("index_table_bytes", "Their size.", "collection")
	indexEntries    = gauge("index_entries", "Entries in tables; an id counts once for each table that has it.", "collection")
	indexLogBytes   = gauge("index_log_bytes", "Bytes of the logs of entries not in tables yet.", "collection")
	memtableBytes   = gauge("index_memtable_bytes", "Memory of memtables.", "collection")
	filterBytes     = gauge("index_filter_resident_bytes", "Memory of Bloom filters.", "collection")
	flushes         = counter("index_flushes_total", "Memtables written to tables.", "collection")
	merges          = counter("index_merges_total", "Merges of tables.", "collection")
	mergeBytes      = counter("index_merge_bytes_total", "Bytes written by merges.", "collection")
	writesStopped   = counter("index_writes_stopped_seconds_total", "Time the tail waited for flushes and merges of the index.", "collection")
	diskFree        = gauge("disk_free_bytes", "Free space of the file systems of queue and index.", "collection", "part")
	indexProblem    = gauge("index_problem", "1 while the last flush or merge failed or writes are refused; see the log.", "collection")
)

var (
	residentRatio = gauge("resident_ratio", "Share of the mapped files that is in memory, by a sample; 1 if the daemon may not write the files.", "collection", "part")
	coldReads     = prometheus.NewDesc("docstore_cold_read_seconds", "Duration of lookups and reads that waited for the disk; a batch counts once.", []string{"collection", "part"}, nil)
)

// collectionCollector collects the metrics of the collections.
type collectionCollector struct{ *daemon }

func (c collectionCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{
		served, ready, lagSeconds, lagBytes, applied, segmentAt, blockAt, faults, faultInfo, quarantined, swept, scrubbed, scrubEnded,
		segments, queueBytes, queueDocs, queueDels,
		indexTables, indexTableBytes, indexEntries, indexLogBytes, memtableBytes, filterBytes, flushes, merges, mergeBytes,
		writesStopped, diskFree, indexProblem, residentRatio,
	} {
		to <- m.desc
	}
	to <- coldReads
}

func (c collectionCollector) Collect(to chan<- prometheus.Metric) {
	for _, collection := range c.collections() {
		name := collection.Name()
		collectStatus(to, name, collection.Status())
		collectResidency(to, name, collection)
		stats, err := collection.Stats()
		if err != nil {
			c.env.Log.Warn("statistics are missing from the metrics", "collection", name, "error", err)
			continue
		}
		segments.send(to, float64(stats.Segments), name)
		queueBytes.send(to, float64(stats.SegmentBytes), name)
		queueDocs.send(to, float64(stats.SegmentDocuments), name)
		queueDels.send(to, float64(stats.SegmentDeletes), name)
		collectIndex(to, name, stats.Index)
		for part, dir := range collection.Dirs() {
			if free, err := vfs.OS.FreeBytes(dir); err == nil { // an error is reported elsewhere
				diskFree.send(to, float64(free), name, part)
			}
		}
	}
}

func collectStatus(to chan<- prometheus.Metric, name string, status collection.Status) {
	served.send(to, float64(status.Gets.Found), name, "found")
	served.send(to, float64(status.Gets.NotFound), name, "not_found")
	served.send(to, float64(status.Gets.Unavailable), name, "unavailable")
	served.send(to, float64(status.Gets.Failed), name, "error")
	ready.send(to, boolValue(status.Ready), name)
	lagSeconds.send(to, status.Lag.Seconds(), name)
	lagBytes.send(to, float64(status.LagBytes()), name)
	applied.send(to, float64(status.Applied), name)
	segmentAt.send(to, float64(status.Position.Next.Segment), name)
	blockAt.send(to, float64(status.Position.Next.Block), name)

	quarantined.send(to, float64(status.Quarantined), name)
	swept.send(to, float64(status.Swept), name)
	scrubbed.send(to, float64(status.Scrub.Bytes), name)
	ended := 0.0
	if !status.Scrub.Ended.IsZero() {
		ended = float64(status.Scrub.Ended.UnixMilli()) / 1000
	}
	scrubEnded.send(to, ended, name)

	stopping, damaged := 0, status.MoreFaults
	for _, f := range status.Faults {
		effect := "documents_unavailable"
		if f.StopsTail {
			effect = "tail_stopped"
			stopping++
		} else {
			damaged++
		}
		faultInfo.send(to, 1, name, strconv.FormatUint(uint64(f.Segment), 10), strconv.FormatInt(f.Offset, 10), strings.ToValidUTF8(f.Path, "?"), strings.ToValidUTF8(f.Reason, "?"), effect)
	}
	faults.send(to, float64(stopping), name, "tail_stopped")
	faults.send(to, float64(damaged), name, "documents_unavailable")
}

// collectResidency sends only what is known.
func collectResidency(to chan<- prometheus.Metric, name string, c *collection.Collection) {
	residency := c.Residency()
	index, queue, measured := c.ColdReads()
	send := func(part string, of collection.PartResidency, cold *collection.ColdReads) {
		if of.MappedBytes > 0 {
			residentRatio.send(to, of.Share, name, part)
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
	indexTables.send(to, float64(len(index.Tables)), name)
	indexTableBytes.send(to, float64(bytes), name)
	indexEntries.send(to, float64(entries), name)
	indexLogBytes.send(to, float64(index.LogBytes), name)
	memtableBytes.send(to, float64(index.MemtableBytes), name)
	filterBytes.send(to, float64(index.Filter.ResidentBytes), name)
	flushes.send(to, float64(index.Writes.Flushes), name)
	merges.send(to, float64(index.Writes.Merges), name)
	mergeBytes.send(to, float64(index.Writes.MergeBytes), name)
	writesStopped.send(to, index.Writes.StallTime.Seconds(), name)
	indexProblem.send(to, boolValue(index.Problem != nil), name)
}

var (
	cacheServers = gauge("memcached_servers", "Memcached servers by state.", "state")
	cacheAsked   = counter("memcached_asked_total", "Documents requested from Memcached, by answer; wrong ones were read from the segments instead.", "answer")
	cacheLoads   = counter("memcached_loads_total", "Documents to be stored in Memcached, by outcome.", "outcome")
)

// cacheCollector collects the metrics of the cache.
type cacheCollector struct{ *daemon }

func (c cacheCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{cacheServers, cacheAsked, cacheLoads} {
		to <- m.desc
	}
}

func (c cacheCollector) Collect(to chan<- prometheus.Metric) {
	if c.cache == nil {
		return
	}
	stats := c.cache.Stats()
	cacheServers.send(to, float64(stats.ServersUp), "up")
	cacheServers.send(to, float64(stats.Servers-stats.ServersUp), "away")
	cacheAsked.send(to, float64(stats.Hits), "hit")
	cacheAsked.send(to, float64(stats.Misses), "miss")
	cacheAsked.send(to, float64(stats.Wrong), "wrong")
	cacheLoads.send(to, float64(stats.Loaded), "loaded")
	cacheLoads.send(to, float64(stats.Dropped), "dropped")
	cacheLoads.send(to, float64(stats.Refused), "refused")
}
