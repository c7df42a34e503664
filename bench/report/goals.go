package main

import (
	"fmt"
	"strings"
)

// A goal is what an issue asked for.
type goal struct {
	issue, text string
	want        float64
	atMost      bool
	format      func(float64) string
	// figure computes what is compared with want, and says what it is of.
	figure func(s set) (figure float64, detail string, ok bool)
	// told is of a goal that this report does not measure: what was measured elsewhere.
	told *told
	// reason is why it is missed: only shown then.
	reason string
}

type told struct {
	figure  string
	reached bool
}

func (g goal) measured(s set) (float64, string, bool) { return g.figure(s) }

func (g goal) reached(figure float64) bool { return (figure <= g.want) == g.atMost || figure == g.want }

func (g goal) wants() string {
	if g.format == nil {
		return ""
	}
	if g.atMost {
		return "at most " + g.format(g.want)
	}
	return "at least " + g.format(g.want)
}

func times(f float64) string { return digits(f) + "x" }

func bytesOf(f float64) string { return number(f) + " bytes" }

// beats is how often the best of rivals goes into ours, by a figure of which more is
// better. A phase may stand for several of which one was measured.
func beats(table, phase, figure, ours string, rivals ...string) func(set) (float64, string, bool) {
	return func(s set) (float64, string, bool) {
		mine, ok := s.cell(table, ours, phase, figure)
		name, theirs, there := s.best(table, phase, figure, false, rivals...)
		if !ok || !there || theirs.Median == 0 {
			return 0, "", false
		}
		return mine.Median / theirs.Median, fmt.Sprintf(" (%s; %s %s)", mine, name, theirs), true
	}
}

// shareOf is our figure divided by that of the best rival, where less is better.
func shareOf(table, phase, figure, ours string, rivals ...string) func(set) (float64, string, bool) {
	return func(s set) (float64, string, bool) {
		mine, ok := s.cell(table, ours, phase, figure)
		name, theirs, there := s.best(table, phase, figure, true, rivals...)
		if !ok || !there || theirs.Median == 0 {
			return 0, "", false
		}
		return mine.Median / theirs.Median, fmt.Sprintf(" (%s; %s %s)", mine.as(duration), name, theirs.as(duration)), true
	}
}

// of is a figure by itself.
func of(table, contestant, phase, figure string) func(set) (float64, string, bool) {
	return func(s set) (float64, string, bool) {
		c, ok := s.cell(table, contestant, phase, figure)
		return c.Median, "", ok
	}
}

// quotient is one figure of ours by another.
func quotient(table, contestant, phase, figure, by string) func(set) (float64, string, bool) {
	return func(s set) (float64, string, bool) {
		a, ok := s.cell(table, contestant, phase, figure)
		b, there := s.cell(table, contestant, phase, by)
		return a.Median / b.Median, "", ok && there && b.Median > 0
	}
}

// kept is the rate of a phase by that of another one.
func kept(table, contestant, phase, alone string) func(set) (float64, string, bool) {
	return func(s set) (float64, string, bool) {
		with, ok := s.cell(table, contestant, phase, "documents/s")
		without, there := s.cell(table, contestant, alone, "documents/s")
		return with.Median / without.Median, fmt.Sprintf(" (%s; alone %s)", with, without), ok && there && without.Median > 0
	}
}

var (
	goLSM = []string{"pebble", "goleveldb", "badger"}
	all   = []string{"pebble", "goleveldb", "badger", "bbolt", "leveldb", "rocksdb", "rocksdb-universal", "lmdb", "kyoto"}
	grpcs = []string{"grpc-go-1", "grpc-go-2", "grpc-go-4"}
	tlss  = []string{"grpc-go-tls-1", "grpc-go-tls-2", "grpc-go-tls-4"}
)

// The original's rates at 10,000,000 entries, built and measured on a machine of this
// kind; it takes no part in the runs.
const javaWrites, javaHits = 299_000, 259_000

// byJava is our rate by the original's, where as many entries were written.
func byJava(phase string, rate float64) func(set) (float64, string, bool) {
	return func(s set) (float64, string, bool) {
		c, ok := s.withNum("article", 10_000_000).cell("article", "docstore", phase, "ops/s")
		return c.Median / rate, fmt.Sprintf(" (%s; the original %s, on another day)", c, number(rate)), ok
	}
}

// peak is the most of a figure in any phase.
func peak(table, contestant, figure string) func(set) (float64, string, bool) {
	return func(s set) (most float64, _ string, ok bool) {
		for _, phase := range s.phases(table) {
			if c, there := s.cell(table, contestant, phase, figure); there {
				most, ok = max(most, c.Greatest), true
			}
		}
		return most, "", ok
	}
}

const (
	oneByOne = "64 callers, batches of 1, uniform"
	by50     = "64 callers, batches of 50, uniform"
)

// goals of the issues that benchmarks decide.
var goals = slicesOf(indexGoals, queueGoals, rpcGoals, fleetGoals, documentGoals)

func slicesOf(parts ...[]goal) (whole []goal) {
	for _, part := range parts {
		whole = append(whole, part...)
	}
	for i := range whole {
		whole[i].reason = reasons[whole[i].issue+": "+whole[i].text]
	}
	return whole
}

func article(text string, want float64, phase string, rivals []string) goal {
	return goal{issue: "B", text: text, want: want, format: times, figure: beats("article", phase, "ops/s", "docstore", rivals...)}
}

func limited(text string, want float64, phase string, rivals []string) goal {
	return goal{issue: "B", text: text + ", in 512 MB", want: want, format: times, figure: beats("limited", phase, "ops/s", "docstore", rivals...)}
}

var indexGoals = []goal{
	article("random writes, to the best LSM in Go", 5, "fillrandom", goLSM),
	article("random writes, to the best of all", 4, "fillrandom", all),
	article("hits, one reader, to the best LSM in Go", 9, "readrandom", goLSM),
	article("hits, one reader, to the best of all", 2.5, "readrandom", all),
	article("hits, two readers, to the best LSM in Go", 12, "readrandom:2", goLSM),
	article("hits, two readers, to the best of all", 2.5, "readrandom:2", all),
	{issue: "B", text: "hits, two readers, to our own one", want: 1.8, format: times, figure: func(s set) (float64, string, bool) {
		two, ok := s.cell("article", "docstore", "readrandom:2", "ops/s")
		one, there := s.cell("article", "docstore", "readrandom", "ops/s")
		return two.Median / one.Median, fmt.Sprintf(" (%s; %s)", two, one), ok && there
	}},
	article("misses, to the best LSM in Go", 15, "readmissing", goLSM),
	article("misses, to the best of all", 3, "readmissing", all),
	article("scan forward, to the best LSM in Go", 1.5, "readseq", goLSM),
	article("scan backward, to Pebble", 1.5, "readreverse", []string{"pebble"}),
	{issue: "B", text: "anonymous memory with defaults", want: 256 << 20, atMost: true, format: megabytes, figure: peak("article", "docstore", "anonymous bytes")},
	limited("random writes, to the best LSM in Go", 4, "fillrandom", goLSM),
	limited("hits, to the best LSM in Go", 2, "readrandom", goLSM),
	limited("misses, to the best LSM in Go", 10, "readmissing", goLSM),
	limited("hits, to the best of all", 1.3, "readrandom", all),
	limited("misses, to the best of all", 1, "readmissing", all),
	{issue: "B", text: "seeks while a writer runs, to Pebble", want: 1, format: times, figure: beats("workloads", "seekrandomwhilewriting", "ops/s", "docstore", "pebble")},
	{issue: "B", text: "YCSB E while a writer runs, to Pebble", want: 1, format: times, figure: beats("workloads", "ycsbewhilewriting", "ops/s", "docstore", "pebble")},
	{issue: "B", text: "random writes of 10,000,000, to the original in Java", want: 4, format: times, figure: byJava("fillrandom", javaWrites)},
	{issue: "B", text: "hits of 10,000,000, to the original in Java", want: 4, format: times, figure: byJava("readrandom", javaHits)},
	{issue: "B", text: "p99.9 of Get by its p50", want: 5, atMost: true, format: times, figure: quotient("latency", "docstore", "readrandom", "p999 ns", "p50 ns")},
	{issue: "B", text: "bytes written to tables by what the article's rule gives", want: 1, atMost: true, format: times, figure: quotient("article", "docstore", "fillrandom", "amplification", "rule amplification")},
}

var queueGoals = []goal{
	{issue: "C", text: "appending by what the codec alone does (s2, one processor)", want: 0.8, format: times, figure: of("codec", "AppendBesideCodec/codec=s2", "benchmark", "codec/append")},
	{issue: "C", text: "appending uncompressed by dd conv=fdatasync", want: 0.5, format: times, figure: of("append", "AppendBesideDisk", "benchmark", "append/dd")},
	{issue: "C", text: "stored of Debian's package list, the best codec", want: 0.42, atMost: true, format: digits, figure: quotient("debian", "docstore-zstd", "load", "queue bytes", "document bytes")},
	{issue: "C", text: "a document by address (s2) over its decoding, ns", want: 1000, atMost: true, format: number, figure: func(s set) (float64, string, bool) {
		fetch, ok := s.cell("fetch", "Document/codec=s2", "benchmark", "ns/op")
		for _, name := range s.contestants("fetch") {
			if strings.HasPrefix(name, "Codec/codec=s2/") && strings.HasSuffix(name, "/op=decode") && !strings.Contains(name, "dictionary=0K") {
				decode, _ := s.cell("fetch", name, "benchmark", "ns/op")
				return fetch.Median - decode.Median, fmt.Sprintf(" (%s; decoding %s)", fetch, decode), ok
			}
		}
		return 0, "", false
	}},
	{issue: "C", text: "index building by what the index alone takes", want: 0.7, format: times, figure: of("indexing", "Indexing", "benchmark", "ratio")},
	{issue: "C", text: "freshness on one file system, p99", want: 100e6, atMost: true, format: duration, figure: of("freshness", "same file system", "visible", "p99 ns")},
	{issue: "C", text: "freshness through rsync every second, p99", want: 3e9, atMost: true, format: duration, figure: of("freshness", "through rsync", "visible", "p99 ns")},
}

func calls(text string, want float64, callers int, ours string, rivals ...string) goal {
	return goal{issue: "D", text: text, want: want, format: times, figure: beats("calls", fmt.Sprintf("calls, %d callers, 1024 bytes", callers), "ops/s", ours, rivals...)}
}

var rpcGoals = []goal{
	calls("1 caller, to a bare echo", 0.8, 1, "boxcar", "echo"),
	calls("64 callers, to the echo over 64 connections", 4, 64, "boxcar", "echo"),
	calls("64 callers, to grpc-go with its best number of connections", 15, 64, "boxcar", grpcs...),
	calls("64 callers, to drpc with its pool", 12, 64, "boxcar", "drpc"),
	calls("64 callers, a connection for each slot, to the echo", 0.85, 64, "boxcar-classic", "echo"),
	{issue: "D", text: "64 callers over TLS, to grpc-go over TLS", want: 10, format: times, figure: beats("rpc", "tls, 64 callers, 1024 bytes", "ops/s", "boxcar-tls", tlss...)},
	{issue: "D", text: "open loop at half of grpc-go's limit: p99 by grpc-go's", want: 0.25, atMost: true, format: times, figure: shareOf("rpc", "open", "p99 ns", "boxcar", grpcs...)},
	{issue: "D", text: "1,024 callers, 10 KB, to grpc-go", want: 4, format: times, figure: beats("rpc", "large, 1024 callers, 10240 bytes", "ops/s", "boxcar", grpcs...)},
	{issue: "D", text: "p99 beside slow handlers by that without", want: 2, atMost: true, format: times, figure: of("rpc", "boxcar", "slow", "p99 ratio")},
	{issue: "D", text: "p99 while a lane moves 16 MiB answers by that without", want: 3, atMost: true, format: times, figure: of("rpc", "boxcar", "bulk", "p99 ratio")},
	{issue: "D", text: "a slot taken and given back by 64 goroutines, ns", want: 200, atMost: true, format: number, figure: of("ladder", "AcquireRelease", "benchmark", "ns/op")},
	{issue: "D", text: "allocations of that", want: 0, atMost: true, format: count, figure: of("ladder", "AcquireRelease", "benchmark", "allocs/op")},
	{issue: "D", text: "an idle client in plain text, on the server", want: 8192, atMost: true, format: bytesOf, figure: of("idle", "boxcar", "idle", "bytes each")},
	{issue: "D", text: "an idle client over TLS, on the server", want: 24576, atMost: true, format: bytesOf, figure: of("idle", "boxcar-tls", "idle", "bytes each")},
	{issue: "D", text: "idle clients, of a processor", want: 0.01, atMost: true, format: percent, figure: of("idle", "boxcar", "idle", "cpu share")},
}

// fleetGoals are of bench/fleet, whose page has tables of its own.
var fleetGoals = []goal{
	{issue: "G", text: "the simulator beside 50 real clients and servers: load shares within 10 %", told: &told{"within 7 % ([balance](balance.md), `fleet -truth`)", true}},
	{issue: "G", text: "10,000 frontends and 1,000,000 backends at full size on this machine", told: &told{"done ([balance](balance.md), the fleet of the document)", true}},
	{issue: "G", text: "which policy to run at 10, 1,000 and 1,000,000 servers, with figures", told: &told{"[balance](balance.md)", true}},
}

func documents(text string, want float64, phase, ours string, rivals ...string) goal {
	return goal{issue: "I", text: text, want: want, format: times, figure: beats("documents", phase, "documents/s", ours, rivals...)}
}

func scarce(text, rival string) goal {
	return goal{issue: "I", text: "a tenth of the documents in memory, zipfian, " + text, want: 0.9, format: times, figure: beats("scarce", "64 callers, batches of 1, zipfian", "documents/s", "docstore", rival)}
}

var documentGoals = []goal{
	documents("64 callers one at a time, to memcached with gomemcache", 2.5, oneByOne, "docstore", "memcached"),
	documents("64 callers one at a time, to Redis with go-redis", 2.5, oneByOne, "docstore", "go-redis"),
	documents("64 callers one at a time, to Redis with rueidis", 1.5, oneByOne, "docstore", "rueidis"),
	documents("64 callers one at a time, to Redis with rueidis as it comes", 1.5, oneByOne, "docstore", plainRueidis),
	documents("64 callers, codec none, to memcached", 3, oneByOne, "docstore-none", "memcached"),
	documents("64 callers, codec none, to Redis with go-redis", 3, oneByOne, "docstore-none", "go-redis"),
	documents("64 callers, codec none, to Redis with rueidis", 1.8, oneByOne, "docstore-none", "rueidis"),
	documents("64 callers, codec none, to Redis with rueidis as it comes", 1.8, oneByOne, "docstore-none", plainRueidis),
	documents("64 callers one at a time, to grpc-go + Pebble", 5, oneByOne, "docstore", "grpc+pebble"),
	documents("batches of 50, to memcached", 1, by50, "docstore", "memcached"),
	documents("batches of 50, codec none, to Redis' MGET", 0.8, by50, "docstore-none", "go-redis", "rueidis"),
	scarce("to memcached refilled from memory", "memcached"),
	scarce("to memcached before a store on disk", "memcached+pebble"),
	{issue: "I", text: "reads while 8,500 documents/s arrive in segments, by reads alone", want: 0.9, format: times, figure: kept("arrivals", "docstore", oneByOne+", beside arrivals", oneByOne)},
}
