package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"docstore/bench/internal/results"
)

// sections are the page's tables, in order.
var sections = []section{
	{
		title: "Index: the article's benchmark", tables: []string{"article"},
		intro: `Random 8-byte keys, 96-byte values, written by one thread without sync, merges included; then random reads by one and two (:2)
threads, hits and misses, and scans. No compression; memtables of 64 MB; caches hold everything.`,
		render: func(p *page) {
			p.matrix(p.set, "article", "ops/s", "ops/s")
			p.list("article", "fillrandom", column{"write amplification", "written times", digits}, column{"CPU ns/op", "cpu ns", number},
				column{"anonymous memory", "anonymous bytes", megabytes})
		},
	},
	{
		title: "Index: 512 MB of memory", tables: []string{"limited"},
		intro:  `10,000,000 entries, 1.04 GB, in a control group of 512 MB that includes the page cache.`,
		render: func(p *page) { p.matrix(p.set, "limited", "ops/s", "ops/s") },
	},
	{
		title: "Index: growing data", tables: []string{"growth"},
		intro:  `Nanoseconds per operation by number of entries, one round.`,
		render: (*page).growth,
	},
	{
		title: "Index: latency", tables: []string{"latency"},
		intro: `Single operations.`,
		render: func(p *page) {
			p.header("", "p50", "p99", "p99.9")
			for _, phase := range p.set.phases("latency") {
				for _, engine := range []string{"docstore", "pebble"} {
					cells := []string{engine + ", " + phase}
					for _, figure := range []string{"p50 ns", "p99 ns", "p999 ns"} {
						cells = append(cells, p.set.text("latency", engine, phase, figure, duration))
					}
					p.row(cells...)
				}
			}
		},
	},
	{
		title: "Index: other workloads", tables: []string{"workloads"},
		intro: `Names of db_bench and YCSB (zipfian, 0.99). open: until the first get; readwhilewriting: next to 50,000 writes per second;
docstore and bbolt have no manual compaction.`,
		render: func(p *page) { p.turned("workloads", "docstore", "pebble", "bbolt") },
	},
	{
		title: "Index: other keys and values", tables: []string{"shapes"},
		intro: `Other sizes of keys and values, and keys with a common prefix.`,
		render: func(p *page) {
			for _, part := range p.set.parts("shapes") {
				p.matrix(part, "shapes", shapeOf(part.all[0])+", ops/s", "ops/s", "docstore", "pebble", "bbolt")
			}
		},
	},
	{
		title: "Index: merge policies", tables: []string{"rules"},
		intro: `When to merge the tables of 100 flushes, and in-place updates of files of 1,000 documents against the queue.`,
		render: func(p *page) {
			p.list("rules", "measured", column{"jobs/s", "jobs/s", number}, column{"write amplification", "written times", digits},
				column{"tables left", "tables", count}, column{"gets/s", "gets/s", number})
			p.list("rules", "updates", column{"updates/s", "updates/s", number}, column{"bytes per update", "written bytes", number})
		},
	},
	{
		title: "Boxcar: calls", tables: []string{"calls"},
		intro: `16-byte requests, 1 KB responses, deadlines, closed loop; calls/s by number of callers. echo: length-prefixed bytes on a connection
per caller; boxcar-classic: a connection per slot. The costs of 64 callers are of both sides together.`,
		render: func(p *page) {
			p.matrix(p.set, "calls", "callers", "ops/s")
			p.list("calls", "calls, 64 callers, 1024 bytes", column{"p50", "p50 ns", duration}, column{"p99", "p99 ns", duration}, column{"CPU", "cpu ns", duration},
				column{"system calls", "syscalls", digits}, column{"allocations, client", "client allocs", digits}, column{"server", "server allocs", digits})
		},
	},
	{
		title: "Boxcar: response sizes", tables: []string{"sizes"},
		intro:  `64 callers, calls/s.`,
		render: func(p *page) { p.matrix(p.set, "sizes", "bytes", "ops/s") },
	},
	{
		title: "Boxcar: TLS, large responses, open loop, interference", tables: []string{"rpc"},
		intro: `open: random arrivals at half of grpc-go's limit, latency from the due time. slow: next to handlers that sleep or take page faults;
bulk: next to responses of 16 MiB on the same connection; apart: on another connection.`,
		render: (*page).rpc,
	},
	{
		title: "Boxcar: connections", tables: []string{"connections"},
		intro: `Resident memory per client after one call.`,
		render: func(p *page) {
			for _, phase := range p.set.phases("connections") {
				p.list("connections", phase, column{"server bytes", "server bytes", number})
			}
		},
	},
	{
		title: "Documents by id", tables: []string{"documents"},
		intro: `Generated documents of 1,000 bytes, all in memory, documents/s by callers x batch. docstore: Boxcar, daemon, index, segments (s2, decoded by
the client). Stores run [with their fastest settings](serving.md#rivals-at-their-best); rueidis gathers commands for 50 us,
flush-us=0 is its default.`,
		render: func(p *page) { p.documents("documents") },
	},
	{
		title: "Documents by id: real records", tables: []string{"debian"},
		intro:  `Debian's package list, 63,666 records of 0.9 KB.`,
		render: func(p *page) { p.documents("debian") },
	},
	{
		title: "Documents by id: during updates", tables: []string{"updater", "arrivals"},
		intro: `64 callers. updater: docstore-updater appends at full speed on the same processors. arrivals: 8,500 documents/s arrive in sealed
segments.`,
		render: func(p *page) {
			p.header("", "documents/s", "p50", "p99", "queue grows per second")
			for _, table := range []string{"updater", "arrivals"} {
				for _, phase := range p.set.phases(table) {
					p.row(table+" "+short(phase), p.set.text(table, "docstore", phase, "documents/s", number), p.set.text(table, "docstore", phase, "p50 ns", duration),
						p.set.text(table, "docstore", phase, "p99 ns", duration), p.set.text(table, "docstore", phase, "queue bytes/s", megabytes))
				}
			}
		},
	},
	{
		title: "Documents by id: little memory", tables: []string{"scarce"},
		intro: `Ten times more documents than fit, 64 callers, equal control groups. memcached: misses are refilled from the benchmark's memory, an
upper bound; memcached+pebble: from Pebble behind grpc-go.`,
		render: func(p *page) {
			for _, phase := range p.set.phases("scarce") {
				if phase != "load" {
					p.list("scarce", phase, column{"documents/s", "documents/s", number}, column{"p99", "p99 ns", duration}, column{"missing", "misses", percent})
				}
			}
		},
	},
	{
		title: "Freshness", tables: []string{"freshness"},
		intro: `Time from a line written to docstore-updater until a daemon answers with it, 50 a second. S3 is a server in memory that delays PUT by 100 ms (p99 195 ms) and GET by 63 ms (p99 78 ms).`,
		render: func(p *page) {
			p.list("freshness", "visible", column{"p50", "p50 ns", duration}, column{"p99", "p99 ns", duration})
		},
	},
	{
		title: "Object store", tables: []string{"rollback", "distribution"},
		intro: `rollback: from the pin of the manifest before until it is served. distribution: restore from a directory; bytes put and got by
publishing and fetching in two steps, per byte of the files.`,
		render: func(p *page) {
			p.list("rollback", "benchmark", column{"time", "ns/op", duration})
			p.list("distribution", "benchmark", column{"restore, per GB", "s/GB", seconds}, column{"put", "put/byte", digits}, column{"got", "got/byte", digits})
		},
	},
	{
		title: "Shards", tables: []string{"columns", "router", "placement"},
		intro: `Gets and batches of 50 (ids) by one caller. columns: 1 daemon, 3 columns of one row, and 3 of 3 rows; router: columns of 3 rows in
one process, and batches of 4 callers while one row takes 100 times as long as the others' 1 ms. placement: from 10 to 11 columns, 256 shards;
an even placement moves 1/11 (9.1 %). All moves go to the new column, so they take the time to fetch these bytes.`,
		render: func(p *page) {
			p.list("columns", "benchmark", column{"router", "router-ns", duration}, column{"router, p99", "router-p99-ns", duration},
				column{"direct pool", "direct-ns", duration}, column{"router/direct", "router/direct", digits})
			p.list("router", "benchmark", column{"router", "router-ns", duration}, column{"direct pool", "direct-ns", duration},
				column{"router/direct", "router/direct", digits}, column{"p50, ms", "p50-ms", digits}, column{"p99, ms", "p99-ms", digits}, column{"hedged, %", "%hedged", digits})
			p.list("placement", "benchmark", column{"moved, %", "%moved", digits}, column{"fullest column/mean", "max/mean", digits}, column{"time", "plan-ns", duration})
		},
	},
}

// growth writes a row for each number of entries.
func (p *page) growth() {
	contestants, phases := p.set.contestants("growth"), p.set.phases("growth")
	head := []string{"entries"}
	for _, contestant := range contestants {
		for _, phase := range phases {
			head = append(head, contestant+" "+phase)
		}
	}
	p.header(head...)
	parts := p.set.parts("growth")
	slices.SortFunc(parts, func(a, b set) int { return cmp.Compare(numOf(a.all[0]), numOf(b.all[0])) })
	for _, part := range parts {
		cells := []string{strconv.Itoa(numOf(part.all[0]))}
		for _, contestant := range contestants {
			for _, phase := range phases {
				cells = append(cells, part.text("growth", contestant, phase, "ops/s", func(f float64) string { return digits(1e9 / f) }))
			}
		}
		p.row(cells...)
	}
}

// shapeOf describes the keys and values of a result.
func shapeOf(r results.Result) string {
	shape := settingOf(r, "key_size") + " + " + settingOf(r, "value_size") + " bytes"
	if prefix := settingOf(r, "prefix_size"); prefix != "0" {
		shape += ", prefix of " + prefix
	}
	return shape
}

func (p *page) rpc() {
	for _, phase := range p.set.phases("rpc") {
		switch {
		case strings.HasPrefix(phase, "tls") || strings.HasPrefix(phase, "large"):
			p.list("rpc", phase, column{"calls/s", "ops/s", number}, column{"p99", "p99 ns", duration}, column{"CPU", "cpu ns", duration})
		case phase == "open":
			p.list("rpc", phase, column{"calls/s due", "due/s", number}, column{"p50", "p50 ns", duration}, column{"p99", "p99 ns", duration},
				column{"benchmark's delay, p99", "late p99 ns", duration})
		}
	}
	p.header("boxcar next to", "p99 alone", "p99", "ratio", "calls/s alone", "calls/s")
	for _, phase := range []string{"slow", "bulk", "apart"} {
		cell := func(figure string, format func(float64) string) string {
			return p.set.text("rpc", "boxcar", phase, figure, format)
		}
		p.row(phase, cell("without p99 ns", duration), cell("with p99 ns", duration), cell("p99 ratio", digits), cell("without ops/s", number), cell("with ops/s", number))
	}
}

// documents writes the rates of docbench, and the costs of a load or of filling the stores.
func (p *page) documents(table string) {
	p.matrix(p.set, table, "callers x batch", "documents/s")
	if table == "documents" {
		p.list(table, oneByOne, column{"p50", "p50 ns", duration}, column{"p99", "p99 ns", duration},
			column{"server us", "server us", digits}, column{"client us", "client us", digits}, column{"memory after filling", "anonymous bytes", megabytes})
		return
	}
	p.header("filling", "appended/s", "queue", "indexed/s", "index", "ready again")
	for _, contestant := range p.set.contestants(table) {
		for _, r := range p.set.of(table, contestant, "load") {
			if f := r.Figures; f["append seconds"] > 0 {
				p.row(contestant, number(f["documents"]/f["append seconds"]), megabytes(f["queue bytes"]),
					number(f["documents"]/f["first ready seconds"]), megabytes(f["index bytes"]), seconds(f["second ready seconds"]))
			}
		}
	}
}
