package main

import (
	"fmt"
	"slices"
	"strings"
)

// A goal is a figure that an issue asked for.
type goal struct {
	area, text string
	want       float64
	atMost     bool
	format     func(float64) string
	// figure computes the value to compare with want.
	figure metric
}

func (g goal) reached(figure float64) bool { return (figure <= g.want) == g.atMost || figure == g.want }

func (g goal) wants() string {
	if g.atMost {
		return "≤" + g.format(g.want)
	}
	return "≥" + g.format(g.want)
}

func times(f float64) string { return digits(f) + "x" }

func bytesOf(f float64) string { return number(f) + "B" }

// A metric computes a figure; ok is false if it was not measured.
type metric func(s set) (figure float64, ok bool)

// of returns a figure.
func of(table, contestant, phase, figure string) metric {
	return func(s set) (float64, bool) {
		c, ok := s.cell(table, contestant, phase, figure)
		return c.median, ok
	}
}

// over divides a figure by another.
func over(a, b metric) metric {
	return func(s set) (float64, bool) {
		x, ok := a(s)
		y, there := b(s)
		return x / y, ok && there && y != 0
	}
}

// beats divides our figure by that of the best rival; more is better.
func beats(table, phase, figure, ours string, rivals ...string) metric {
	return over(of(table, ours, phase, figure), best(table, phase, figure, false, rivals))
}

// best returns the greatest figure of several contestants, or the least.
func best(table, phase, figure string, least bool, contestants []string) metric {
	return func(s set) (float64, bool) {
		_, c, ok := s.best(table, phase, figure, least, contestants...)
		return c.median, ok
	}
}

var (
	goLSM = []string{"pebble", "goleveldb", "badger"}
	all   = []string{"pebble", "goleveldb", "badger", "bbolt", "leveldb", "rocksdb-universal", "lmdb", "kyoto"}
	grpcs = []string{"grpc-go-1", "grpc-go-2", "grpc-go-4"}
	tlss  = []string{"grpc-go-tls-1", "grpc-go-tls-2", "grpc-go-tls-4"}
)

// Rates of the original implementation at 10,000,000 entries, measured once on such a machine.
const javaWrites, javaHits = 299_000, 259_000

// byJava divides our rate by that of the original, at 10,000,000 entries.
func byJava(phase string, rate float64) metric {
	return func(s set) (float64, bool) {
		for _, r := range s.of("article", "docstore", phase) {
			if settingOf(r, "num") == "10000000" {
				return r.Figures["ops/s"] / rate, true
			}
		}
		return 0, false
	}
}

// peak returns the greatest of a figure in any phase.
func peak(table, contestant, figure string) metric {
	return func(s set) (most float64, ok bool) {
		for _, phase := range s.phases(table) {
			if c, there := s.cell(table, contestant, phase, figure); there {
				most, ok = max(most, c.median), true
			}
		}
		return most, ok
	}
}

const (
	oneByOne = "64 callers, batches of 1, uniform"
	by50     = "64 callers, batches of 50, uniform"
)

// goals that benchmarks decide; those of balancing are in docs/balance.md.
var goals = slices.Concat(indexGoals, queueGoals, rpcGoals, documentGoals)

func article(text string, want float64, phase string, rivals []string) goal {
	return goal{area: "Index", text: text, want: want, format: times, figure: beats("article", phase, "ops/s", "docstore", rivals...)}
}

func limited(text string, want float64, phase string, rivals []string) goal {
	return goal{area: "Index", text: text + ", in 512 MB", want: want, format: times, figure: beats("limited", phase, "ops/s", "docstore", rivals...)}
}

var indexGoals = []goal{
	article("writes, best Go LSM", 5, "fillrandom", goLSM),
	article("writes, best of all", 4, "fillrandom", all),
	article("hits, best Go LSM", 9, "readrandom", goLSM),
	article("hits, best of all", 2.5, "readrandom", all),
	article("hits:2, best Go LSM", 12, "readrandom:2", goLSM),
	article("hits:2, best of all", 2.5, "readrandom:2", all),
	{area: "Index", text: "hits:2, one reader", want: 1.8, format: times, figure: over(of("article", "docstore", "readrandom:2", "ops/s"), of("article", "docstore", "readrandom", "ops/s"))},
	article("misses, best Go LSM", 15, "readmissing", goLSM),
	article("misses, best of all", 3, "readmissing", all),
	article("scan, best Go LSM", 1.5, "readseq", goLSM),
	article("backward scan, Pebble", 1.5, "readreverse", []string{"pebble"}),
	{area: "Index", text: "anonymous memory with defaults", want: 256 << 20, atMost: true, format: megabytes, figure: peak("article", "docstore", "anonymous bytes")},
	limited("writes, best Go LSM", 4, "fillrandom", goLSM),
	limited("hits, best Go LSM", 2, "readrandom", goLSM),
	limited("misses, best Go LSM", 10, "readmissing", goLSM),
	limited("hits, best of all", 1.3, "readrandom", all),
	limited("misses, best of all", 1, "readmissing", all),
	{area: "Index", text: "seeks next to a writer, Pebble", want: 1, format: times, figure: beats("workloads", "seekrandomwhilewriting", "ops/s", "docstore", "pebble")},
	{area: "Index", text: "YCSB E next to a writer, Pebble", want: 1, format: times, figure: beats("workloads", "ycsbewhilewriting", "ops/s", "docstore", "pebble")},
	{area: "Index", text: "writes, original in Java", want: 4, format: times, figure: byJava("fillrandom", javaWrites)},
	{area: "Index", text: "hits, original in Java", want: 4, format: times, figure: byJava("readrandom", javaHits)},
	{area: "Index", text: "p99.9 of Get, its p50", want: 5, atMost: true, format: times, figure: over(of("latency", "docstore", "readrandom", "p999 ns"), of("latency", "docstore", "readrandom", "p50 ns"))},
	{area: "Index", text: "bytes written, article's rule", want: 1, atMost: true, format: times, figure: over(of("article", "docstore", "fillrandom", "amplification"), of("article", "docstore", "fillrandom", "rule amplification"))},
}

var queueGoals = []goal{
	{area: "Queue", text: "appending, codec alone (s2)", want: 0.8, format: times, figure: of("codec", "AppendBesideCodec/codec=s2", "benchmark", "codec/append")},
	{area: "Queue", text: "appending uncompressed, dd", want: 0.5, format: times, figure: of("append", "AppendBesideDisk", "benchmark", "append/dd")},
	{area: "Queue", text: "compressed size, Debian's packages", want: 0.42, atMost: true, format: digits, figure: over(of("debian", "docstore-zstd", "load", "queue bytes"), of("debian", "docstore-zstd", "load", "document bytes"))},
	{area: "Queue", text: "fetch without decoding (s2), ns", want: 1000, atMost: true, format: number, figure: func(s set) (float64, bool) {
		fetch, ok := s.cell("fetch", "Document/codec=s2", "benchmark", "ns/op")
		for _, name := range s.contestants("fetch") {
			if strings.HasPrefix(name, "Codec/codec=s2/") && strings.HasSuffix(name, "/op=decode") && !strings.Contains(name, "dictionary=0K") {
				decode, _ := s.cell("fetch", name, "benchmark", "ns/op")
				return fetch.median - decode.median, ok
			}
		}
		return 0, false
	}},
	{area: "Queue", text: "index building, index alone", want: 0.7, format: times, figure: of("indexing", "Indexing", "benchmark", "ratio")},
	{area: "Queue", text: "freshness, p99", want: 100e6, atMost: true, format: duration, figure: of("freshness", "same file system", "visible", "p99 ns")},
	{area: "Queue", text: "freshness through rsync, p99", want: 3e9, atMost: true, format: duration, figure: of("freshness", "through rsync", "visible", "p99 ns")},
	{area: "Queue", text: "freshness through a directory, p99", want: 500e6, atMost: true, format: duration, figure: of("freshness", "through a directory", "visible", "p99 ns")},
	{area: "Queue", text: "freshness through S3, p99", want: 1.5e9, atMost: true, format: duration, figure: of("freshness", "through S3", "visible", "p99 ns")},
	{area: "Queue", text: "rollback, s per 10,000,000 entries", want: 1, atMost: true, format: digits, figure: of("rollback", "Rollback/documents=4000000", "benchmark", "s/10M")},
}

func calls(text string, want float64, callers int, ours string, rivals ...string) goal {
	return goal{area: "Boxcar", text: text, want: want, format: times, figure: beats("calls", fmt.Sprintf("calls, %d callers, 1024 bytes", callers), "ops/s", ours, rivals...)}
}

var rpcGoals = []goal{
	calls("1 caller, echo", 0.8, 1, "boxcar", "echo"),
	calls("64 callers, echo", 4, 64, "boxcar", "echo"),
	calls("64 callers, grpc-go", 15, 64, "boxcar", grpcs...),
	calls("64 callers, drpc", 12, 64, "boxcar", "drpc"),
	calls("connection per slot, echo", 0.85, 64, "boxcar-classic", "echo"),
	{area: "Boxcar", text: "TLS, grpc-go", want: 10, format: times, figure: beats("rpc", "tls, 64 callers, 1024 bytes", "ops/s", "boxcar-tls", tlss...)},
	{area: "Boxcar", text: "open loop p99, grpc-go", want: 0.25, atMost: true, format: times, figure: over(of("rpc", "boxcar", "open", "p99 ns"), best("rpc", "open", "p99 ns", true, grpcs))},
	{area: "Boxcar", text: "1,024 callers, 10 KB, grpc-go", want: 4, format: times, figure: beats("rpc", "large, 1024 callers, 10240 bytes", "ops/s", "boxcar", grpcs...)},
	{area: "Boxcar", text: "p99 next to slow handlers, without", want: 2, atMost: true, format: times, figure: of("rpc", "boxcar", "slow", "p99 ratio")},
	{area: "Boxcar", text: "p99 next to 16 MiB responses, without", want: 3, atMost: true, format: times, figure: of("rpc", "boxcar", "bulk", "p99 ratio")},
	{area: "Boxcar", text: "acquire and release, ns", want: 200, atMost: true, format: number, figure: of("ladder", "AcquireRelease", "benchmark", "ns/op")},
	{area: "Boxcar", text: "its allocations", want: 0, atMost: true, format: count, figure: of("ladder", "AcquireRelease", "benchmark", "allocs/op")},
	{area: "Boxcar", text: "idle client", want: 8192, atMost: true, format: bytesOf, figure: of("idle", "boxcar", "idle", "bytes each")},
	{area: "Boxcar", text: "idle client, TLS", want: 24576, atMost: true, format: bytesOf, figure: of("idle", "boxcar-tls", "idle", "bytes each")},
	{area: "Boxcar", text: "idle clients, processor", want: 0.01, atMost: true, format: percent, figure: of("idle", "boxcar", "idle", "cpu share")},
}

func documents(text string, want float64, phase, ours string, rivals ...string) goal {
	return goal{area: "Documents", text: text, want: want, format: times, figure: beats("documents", phase, "documents/s", ours, rivals...)}
}

func scarce(text, rival string) goal {
	return goal{area: "Documents", text: "little memory, " + text, want: 0.9, format: times, figure: beats("scarce", "64 callers, batches of 1, zipfian", "documents/s", "docstore", rival)}
}

var documentGoals = []goal{
	documents("64 callers, memcached", 2.5, oneByOne, "docstore", "memcached"),
	documents("64 callers, go-redis", 2.5, oneByOne, "docstore", "go-redis"),
	documents("64 callers, rueidis", 1.5, oneByOne, "docstore", "rueidis"),
	documents("64 callers, rueidis default", 1.5, oneByOne, "docstore", plainRueidis),
	documents("codec none, memcached", 3, oneByOne, "docstore-none", "memcached"),
	documents("codec none, go-redis", 3, oneByOne, "docstore-none", "go-redis"),
	documents("codec none, rueidis", 1.8, oneByOne, "docstore-none", "rueidis"),
	documents("codec none, rueidis default", 1.8, oneByOne, "docstore-none", plainRueidis),
	documents("64 callers, grpc-go + Pebble", 5, oneByOne, "docstore", "grpc+pebble"),
	documents("batches of 50, memcached", 1, by50, "docstore", "memcached"),
	documents("batches of 50, codec none, Redis", 0.8, by50, "docstore-none", "go-redis", "rueidis"),
	scarce("memcached", "memcached"),
	scarce("memcached and Pebble", "memcached+pebble"),
	{area: "Documents", text: "reads while 8,500 documents/s arrive", want: 0.9, format: times, figure: over(of("arrivals", "docstore", oneByOne+", beside arrivals", "documents/s"), of("arrivals", "docstore", oneByOne, "documents/s"))},
}
