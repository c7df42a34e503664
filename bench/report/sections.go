package main

import (
	"slices"
	"strconv"
	"strings"

	"docstore/bench/internal/results"
)

// sections are the page's tables, in order.
var sections = []section{
	{
		title: "The article's benchmark", tables: []string{"article"},
		intro: `Entries of 8-byte random keys and 96-byte values, written in random order by one thread without a sync for each, the merges
included in the time; then random reads of one thread and of two (:2), of keys that are there and that are not, and scans. Nobody
compresses; filters of rivals have 10 bits a key, of docstore 2 % false positives; memtables have 64 MB;
caches hold everything. In operations a second. At 10,000,000 the article had 272 s of writes and 46 s of reads for its own tree,
375 and 80 for LevelDB, 375 and 183 for Kyoto Cabinet, on its machines of 2012.`,
		render: func(p *page) {
			p.matrix("article")
			p.list("article", "fillrandom", "", column{"written / entries", "written times", digits}, column{"tables / rule", "amplification", digits},
				column{"by the rule alone", "rule amplification", digits}, column{"processors, ns/op", "cpu ns", number},
				column{"anonymous memory", "anonymous bytes", megabytes}, column{"resident", "resident bytes", megabytes})
		},
	},
	{
		title: "The same in 512 MB", tables: []string{"limited"},
		intro: `10,000,000 entries, 1.04 GB, in a control group of 512 MB, page cache included; caches get an eighth of it, all have filters of
10 bits a key. The article: 454 s of writes for its tree, 464 for LevelDB, 50 hours for Kyoto Cabinet.`,
		render: func(p *page) {
			p.matrix("limited")
			p.list("limited", "readrandom", "", column{"read from disk a get, bytes", "read bytes", number})
			p.list("limited", "readmissing", "", column{"read from disk a get, bytes", "read bytes", number})
		},
	},
	{
		title: "As the data grow", tables: []string{"growth"},
		intro:  `The cost of an operation against the number of entries of 8 + 96 bytes, ns, one round.`,
		render: (*page).growth,
	},
	{
		title: "How long operations take", tables: []string{"latency"},
		intro: `Percentiles of single operations, which are timed here at some cost in rate.`,
		render: func(p *page) {
			for _, phase := range p.set.phases("latency") {
				p.list("latency", phase, "", column{"p50", "p50 ns", duration}, column{"p99", "p99 ns", duration}, column{"p99.9", "p999 ns", duration})
			}
		},
	},
	{
		title: "LevelDB's other workloads, and YCSB's", tables: []string{"workloads"},
		intro: `By the names of db_bench and YCSB (zipfian, 0.99), on fewer entries. fillsync syncs each write and writes a thousandth of them;
open is until the first get has answered; readwhilewriting has a writer of 50,000 entries a second beside it, readwhilescanning a
scan without end; docstore, bbolt and LMDB have no compaction by hand. What B-trees write in these but fill is a transaction each.`,
		render: func(p *page) { p.turned("workloads") },
	},
	{
		title: "Other keys and values", tables: []string{"shapes"},
		intro: `Keys and values of other sizes than the article's, and keys that begin alike: what is fast because all keys have eight bytes,
or because these tell them apart, has nothing of that here.`,
		render: (*page).shapes,
	},
	{
		title: "What the article argues against", tables: []string{"rules"},
		intro:  `When are the indexes of flushed memory merged? Counted by the article's own steps, of 100,000 jobs a flush:`,
		render: (*page).rules,
	},
	{
		title: "Calls", tables: []string{"calls"},
		intro: `Requests of 16 bytes, responses of 1 KB, a deadline on each call, client and server in a process each, everybody sends the next
request when he has the answer. Echo is what a length and the bytes cost on a connection for each caller, without deadlines;
boxcar-classic has a connection for each slot, as in the article. Processor time, system calls (read and write) and allocations are of both sides and of one call.`,
		render: func(p *page) {
			for _, phase := range p.set.phases("calls") {
				p.list("calls", phase, "boxcar", callColumns...)
			}
		},
	},
	{
		title: "Sizes of responses", tables: []string{"sizes"}, intro: `64 callers; calls a second.`,
		render: func(p *page) { p.matrix("sizes") },
	},
	{
		title: "TLS, large answers, open loop, neighbours", tables: []string{"rpc"},
		intro: `tls and large as above. open: requests are due at random moments, at half of what grpc-go can do, whatever becomes of those
before, and take from when they were due; "late" is the bench's own lateness. slow: 63 callers alone, and beside a handler that
sleeps and one that takes page faults; bulk: 64 callers alone, and beside one that gets 16 MiB at a time on the same connection; apart: on another.`,
		render: (*page).rpc,
	},
	{
		title: "What a connection costs", tables: []string{"connections", "idle"},
		intro: `Resident memory for each client that has made one call, after collection; idle: clients that say nothing, once they ask
for better slots but rarely (in the quick size they still do).`,
		render: func(p *page) {
			for _, phase := range p.set.phases("connections") {
				p.list("connections", phase, "", column{"server, bytes", "server bytes", number}, column{"client, bytes", "client bytes", number})
			}
			for _, phase := range p.set.phases("idle") {
				p.list("idle", phase, "", column{"server, bytes each", "bytes each", number}, column{"of a processor", "cpu share", percent})
			}
		},
	},
	{
		title: "The main job: documents by id", tables: []string{"documents"},
		intro: `Made documents of about 1,000 bytes, asked for by id: docstore through Boxcar, daemon, index and segments (s2, the client
decodes), and the same documents in what one would use instead, with memory for everything. Each store in processes of its
own on the machine that it shares with the callers. Rivals are set up [as fast as we could find](serving.md#rivals-at-their-best):
rueidis gathers commands for 50 us, flush-us=0 is rueidis as it comes.`,
		render: func(p *page) { p.documents("documents") },
	},
	{
		title: "The same with real records", tables: []string{"debian"},
		intro:  `The package list of Debian, 63,666 records of 0.9 KB on average.`,
		render: func(p *page) { p.documents("debian") },
	},
	{
		title: "While it is updated", tables: []string{"updater", "arrivals"},
		intro: `64 callers, one document at a time, uniform. updater: docstore-updater appends to the daemon's queue as fast as it can, on the
same processors. arrivals: sealed segments come as rsync brings them, 8,500 documents a second, a day's updates in five minutes.`,
		render: func(p *page) {
			for _, table := range []string{"updater", "arrivals"} {
				p.besides(table)
			}
		},
	},
	{
		title: "With little memory", tables: []string{"scarce"},
		intro: `Ten times more documents than fit, 64 callers; the processes of each store together in a control group of the same size.
memcached: what it has lost is put in again from the bench's own memory, and counts as fetched: a bound, as no user has a database
that costs nothing. memcached+pebble: the same before a store on disk, as one would have it, Pebble behind grpc-go; memcached
is given two fifths of the memory.`,
		render: func(p *page) {
			for _, phase := range p.set.phases("scarce") {
				if phase != "load" {
					p.list("scarce", phase, "docstore", append(slices.Clone(documentColumns), column{"missing", "misses", percent})...)
				}
			}
		},
	},
	{
		title: "Freshness", tables: []string{"freshness"},
		intro: `From a line written into docstore-updater until a daemon answers with it, 50 a second.`,
		render: func(p *page) {
			p.list("freshness", "visible", "", column{"p50", "p50 ns", duration}, column{"p90", "p90 ns", duration}, column{"p99", "p99 ns", duration}, column{"max", "max ns", duration})
		},
	},
	{
		title: "Parts", tables: []string{"append", "codec", "fetch", "indexing", "ladder"},
		intro: `Benchmarks beside the code: appending without compression beside dd, the codec's share of appending, a document by address,
index building beside the index alone, and a slot taken and given back.`,
		render: (*page).parts,
	},
}

var callColumns = []column{
	{"calls/s", "ops/s", number}, {"p50", "p50 ns", duration}, {"p99", "p99 ns", duration}, {"processors", "cpu ns", duration},
	{"system calls", "syscalls", digits}, {"allocations, client", "client allocs", digits}, {"server", "server allocs", digits},
	{"memory, client", "client peak bytes", megabytes}, {"server ", "server peak bytes", megabytes},
}

var documentColumns = []column{
	{"documents/s", "documents/s", number}, {"p50", "p50 ns", duration}, {"p99", "p99 ns", duration}, {"p99.9", "p999 ns", duration}, {"server, us each", "server us", digits}, {"client", "client us", digits},
}

// growth has a row for each number of entries.
func (p *page) growth() {
	contestants, phases := p.set.contestants("growth"), p.set.phases("growth")
	p.printf("\n| entries |")
	for _, contestant := range contestants {
		for _, phase := range phases {
			p.printf(" %s, %s |", contestant, phase)
		}
	}
	p.printf("\n|---%s|\n", strings.Repeat("|---", len(contestants)*len(phases)))
	for _, num := range p.set.nums("growth") {
		p.printf("| %s |", strconv.Itoa(num))
		for _, contestant := range contestants {
			for _, phase := range phases {
				text := ""
				if c, ok := p.set.withNum("growth", num).cell("growth", contestant, phase, "ops/s"); ok {
					text = digits(1e9 / c.Median)
				}
				p.printf(" %s |", text)
			}
		}
		p.printf("\n")
	}
}

// shapes has a matrix for each shape of keys and values.
func (p *page) shapes() {
	for _, part := range p.set.parts("shapes") {
		p.matrixOf(part, "shapes", shapeOf(part.all[0])+", "+rate)
	}
}

// shapeOf is the shape of a result's keys and values, for people.
func shapeOf(r results.Result) string {
	shape := settingOf(r, "key_size") + " + " + settingOf(r, "value_size") + " bytes"
	if prefix := settingOf(r, "prefix_size"); prefix != "0" {
		shape += ", all keys begin with the same " + prefix
	}
	return shape
}

// nums are the numbers of entries of a table's results.
func (s set) nums(table string) (nums []int) {
	for _, r := range s.of(table, "", "") {
		if n := numOf(r); !slices.Contains(nums, n) {
			nums = append(nums, n)
		}
	}
	slices.Sort(nums)
	return nums
}

func (p *page) rules() {
	for _, phase := range p.set.phases("rules") {
		switch {
		case strings.HasPrefix(phase, "counted"):
			p.list("rules", phase, "", column{"job writes", "job writes", number}, column{"indexes left", "indexes", count})
		case phase == "measured":
			p.printf("\nThe article prints 15.2 million for 100 flushes; its own rule gives 37.6. The same by package lsm; \"always merge\" skips what comes while it merges:\n")
			p.list("rules", phase, "", column{"jobs/s", "jobs/s", number}, column{"times written", "times written", digits},
				column{"flushes", "flushes", count}, column{"tables left", "tables", count}, column{"gets/s", "gets/s", number})
		case phase == "updates":
			p.printf("\nThe document store's first version, files of 1,000 documents in the order of ids, each read, changed and written back for an update, " +
				"and the queue, both on disk when the clock stops. The article had 37.5 updates/s of the first.\n")
			p.list("rules", phase, "", column{"updates/s", "updates/s", number}, column{"bytes written each", "written bytes", number})
		}
	}
}

func (p *page) rpc() {
	for _, phase := range p.set.phases("rpc") {
		switch {
		case strings.HasPrefix(phase, "tls") || strings.HasPrefix(phase, "large"):
			p.list("rpc", phase, "", callColumns...)
		case phase == "open":
			p.list("rpc", phase, "", column{"calls/s due", "due/s", number}, column{"p50", "p50 ns", duration}, column{"p90", "p90 ns", duration},
				column{"p99", "p99 ns", duration}, column{"p99.9", "p999 ns", duration}, column{"late, p99", "late p99 ns", duration})
		case strings.HasPrefix(phase, "open"): // how the rate was found
		default:
			p.list("rpc", phase, "", column{"p99 without", "without p99 ns", duration}, column{"p99 with", "with p99 ns", duration},
				column{"ratio", "p99 ratio", digits}, column{"calls/s without", "without ops/s", number}, column{"with", "with ops/s", number})
		}
	}
}

// documents has a table for each load of docbench, and what filling the stores took.
func (p *page) documents(table string) {
	for _, phase := range p.set.phases(table) {
		if phase != "load" {
			p.list(table, phase, "docstore", documentColumns...)
		}
	}
	p.printf("\nFilling: docstore's is the updater's from lines of JSON to durable segments, then a daemon's from start to ready, which builds the index, and from another start to ready.\n")
	p.printf("\n| filled | documents | seconds in all | appended/s | queue | indexed/s | index | ready again | anonymous memory |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, contestant := range p.set.contestants(table) {
		for _, r := range p.set.of(table, contestant, "load") {
			f := r.Figures
			p.printf("| %s | %s | %s |", contestant, number(f["documents"]), digits(f["seconds"]))
			if f["append seconds"] > 0 {
				p.printf(" %s | %s | %s | %s | %s |", number(f["documents"]/f["append seconds"]), megabytes(f["queue bytes"]),
					number(f["documents"]/f["first ready seconds"]), megabytes(f["index bytes"]), seconds(f["second ready seconds"]))
			} else {
				p.printf(" | | | | |")
			}
			p.printf(" %s |\n", megabytes(f["anonymous bytes"]))
		}
	}
}

// besides shows what is lost beside something else.
func (p *page) besides(table string) {
	p.printf("\n| %s | documents/s | of the rate alone | p50 | p99 | queue grows | processors: daemon | updater |\n|---|---|---|---|---|---|---|---|\n", table)
	base := cell{}
	for _, phase := range p.set.phases(table) {
		c, ok := p.set.cell(table, "docstore", phase, "documents/s")
		if !ok {
			continue
		}
		if !strings.Contains(phase, "beside") {
			base = c
		}
		told := func(figure string, format func(float64) string) string {
			c, ok := p.set.cell(table, "docstore", phase, figure)
			if !ok {
				return ""
			}
			return c.as(format)
		}
		p.printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", phase, c, digits(c.Median/base.Median), told("p50 ns", duration), told("p99 ns", duration),
			told("queue bytes/s", func(f float64) string { return megabytes(f) + "/s" }), told("server cpu", digits), told("updater cpu", digits))
	}
}

// parts are the figures of go test -bench.
func (p *page) parts() {
	p.printf("\n| benchmark | figures |\n|---|---|\n")
	for _, table := range []string{"append", "codec", "fetch", "indexing", "ladder"} {
		for _, contestant := range p.set.contestants(table) {
			all := p.set.of(table, contestant, "benchmark")
			if len(all) == 0 {
				continue
			}
			var told []string
			for _, figure := range figureNames(all[0]) {
				c, _ := p.set.cell(table, contestant, "benchmark", figure)
				told = append(told, c.String()+" "+figure)
			}
			p.printf("| %s | %s |\n", contestant, strings.Join(told, ", "))
		}
	}
}

func figureNames(r results.Result) []string { return sortedKeys(r.Figures) }
