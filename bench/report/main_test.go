package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

var update = flag.Bool("update", false, "write the golden page anew")

// made are results of a few steps, enough for each kind of table.
func made() (all []results.Result) {
	commands := map[string]string{
		"article": "-engine docstore,pebble -num 10000000 -reads 1000000 -rounds 1", // full, but with rounds of its own
		"calls":   "-workloads calls -callers 64",
		"shapes":  "-key_size 16 -num 150000 -reads 100000 -rounds 3",
	}
	for _, table := range []string{"growth", "rules", "rpc", "documents", "arrivals", "freshness", "ladder"} {
		s, _ := stepOf(table)
		commands[table] = s.ofSize("quick")
	}
	add := func(bench, table, settings, contestant, phase string, rounds ...map[string]float64) {
		for i, figures := range rounds {
			r := results.Result{
				Key:  results.Key{Bench: bench, Table: table, Settings: settings, Contestant: contestant, Phase: phase, Round: i + 1},
				Date: time.Date(2026, 11, 21, 10, len(all), 0, 0, time.UTC), Commit: "0123456789ab", Machine: "2 x made", Command: bench + " " + commands[table], Figures: figures,
			}
			if figures["others"] > 0.1 {
				r.Warnings = []string{"others took 40 % of the processors"}
			}
			all = append(all, r)
		}
	}
	rates := func(rates ...float64) (rounds []map[string]float64) {
		for _, rate := range rates {
			rounds = append(rounds, map[string]float64{
				"ops/s": rate, "documents/s": rate, "p50 ns": 1e9 / rate, "p90 ns": 2e9 / rate, "p99 ns": 5e9 / rate, "p999 ns": 9e9 / rate,
				"anonymous bytes": 1e8, "written times": 2.5, "amplification": 3.5, "rule amplification": 3.25, "server us": 4,
			})
		}
		return rounds
	}
	add("dbbench", "article", "num=10000000 reads=1000000", "docstore", "fillrandom", rates(1_500_000, 1_600_000, 1_550_000)...)
	add("dbbench", "article", "num=10000000 reads=1000000", "docstore", "readrandom", rates(1_000_000, 900_000)...)
	add("dbbench", "article", "num=10000000 reads=1000000", "pebble", "fillrandom", rates(300_000, 310_000, 305_000)...)
	busy := rates(120_000)
	busy[0]["others"] = 0.4
	add("dbbench", "article", "num=10000000 reads=1000000", "pebble", "readrandom", busy...)
	add("dbbench", "article", "num=10000000 reads=1000000", "lmdb", "readrandom", rates(1_200_000)...)
	for _, num := range []string{"1000", "10000"} {
		add("dbbench", "growth", "num="+num+" reads=10", "docstore", "fillrandom", rates(2e6)...)
	}
	for _, shape := range []string{"key_size=16 value_size=1024 prefix_size=0", "key_size=40 value_size=200 prefix_size=32"} {
		for i, contestant := range []string{"docstore", "pebble", "goleveldb"} {
			add("dbbench", "shapes", "num=150000 "+shape, contestant, "fillrandom", rates(2e5/float64(i+1))...)
		}
		add("dbbench", "shapes", "num=150000 "+shape, "pebble", "readseq", rates(5e6)...)
	}
	add("dbbench", "shapes", "num=150000 key_size=40 value_size=200 prefix_size=32", "docstore", "readseq", rates(4e6)...)
	add("article", "rules", "", "always merge", "counted, 4 flushes", map[string]float64{"job writes": 1e6, "indexes": 1})
	add("article", "rules", "", "always merge", "measured", map[string]float64{"jobs/s": 123456, "times written": 50.5, "tables": 1, "flushes": 100, "gets/s": 777})
	add("article", "rules", "", "the queue, appended to", "updates", map[string]float64{"updates/s": 98765, "written bytes": 345})
	add("rpcbench", "calls", "", "echo", "calls, 64 callers, 1024 bytes", rates(130_000)...)
	add("rpcbench", "calls", "", "boxcar", "calls, 64 callers, 1024 bytes", rates(520_001)...)
	add("rpcbench", "rpc", "", "boxcar", "slow", map[string]float64{"without p99 ns": 1e5, "with p99 ns": 3e5, "p99 ratio": 3, "without ops/s": 5, "with ops/s": 4})
	add("docbench", "documents", "", "docstore", "load", map[string]float64{
		"documents": 1000, "seconds": 2, "append seconds": 0.5, "first ready seconds": 0.25, "second ready seconds": 0.01,
		"queue bytes": 5e5, "index bytes": 4e4, "anonymous bytes": 2e7,
	})
	add("docbench", "documents", "", "memcached", "load", map[string]float64{"documents": 1000, "seconds": 1, "anonymous bytes": 1e8})
	add("docbench", "documents", "", "docstore", oneByOne, rates(250_000)...)
	add("docbench", "documents", "", "memcached", oneByOne, rates(100_000)...)
	add("docbench", "arrivals", "", "docstore", oneByOne, rates(200_000)...)
	beside := rates(190_000)
	beside[0]["queue bytes/s"], beside[0]["server cpu"] = 4e6, 0.75
	add("docbench", "arrivals", "", "docstore", oneByOne+", beside arrivals", beside...)
	add("freshness", "freshness", "", "same file system", "visible", map[string]float64{"p50 ns": 3e7, "p90 ns": 4e7, "p99 ns": 1.5e8, "max ns": 2e8})
	add("gotest", "ladder", "", "AcquireRelease", "benchmark", map[string]float64{"ns/op": 150, "allocs/op": 0})
	return all
}

// TestThePage compares the page with the golden one.
func TestThePage(t *testing.T) {
	dir := t.TempDir()
	s := set{made()}
	p := page{set: s}
	var err error
	p.pictures, err = drawAll(s, dir, "images")
	require.NoError(t, err)
	drawn, err := os.ReadDir(filepath.Join(dir, "images"))
	require.NoError(t, err)
	require.Len(t, drawn, 5)
	golden := filepath.Join("testdata", "page.md")
	page := p.render()
	if *update {
		require.NoError(t, os.WriteFile(golden, page, 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(page), "go test ./report -update writes it anew")
}

func TestFigures(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.123: "0.12", 9.994: "9.99", 9.996: "10.0", 99.96: "100", 1234: "1234", 12345: "12.3 k", 999_999: "1000 k", 1_234_567: "1.23 M", 18_700_000: "18.7 M"} {
		require.Equal(t, want, number(f))
	}
	for ns, want := range map[float64]string{250: "250 ns", 41_200: "41.2 us", 5_800_000: "5.80 ms", 3e9: "3.00 s"} {
		require.Equal(t, want, duration(ns))
	}
	c := cell{Spread: results.SpreadOf([]float64{90, 100, 120}), rounds: 3}
	require.Equal(t, "100 ±15%", c.String())
	c.busy = true
	require.Equal(t, "100 ±15%*", c.String())
}

func TestMarks(t *testing.T) {
	least := goal{want: 2}
	require.True(t, least.reached(2))
	require.False(t, least.reached(1.99))
	most := goal{want: 2, atMost: true}
	require.True(t, most.reached(2))
	require.True(t, most.reached(1))
	require.False(t, most.reached(2.01))
}

// TestGoalsAndReasons holds what is written by hand beside what is computed.
func TestGoalsAndReasons(t *testing.T) {
	known := map[string]bool{}
	for _, g := range goals {
		key := g.issue + ": " + g.text
		require.False(t, known[key], key)
		known[key] = true
		require.NotEqual(t, g.figure == nil, g.told == nil, key)
	}
	for key := range reasons {
		require.True(t, known[key], "no goal has this reason: %s", key)
	}
	for _, r := range races {
		require.Contains(t, stepNames(), r.table)
	}
	for _, s := range sections {
		for _, table := range s.tables {
			require.Contains(t, stepNames(), table)
		}
	}
	for _, name := range stepNames() {
		require.True(t, slices.ContainsFunc(sections, func(s section) bool { return slices.Contains(s.tables, name) }), name)
	}
}

func TestBenchmarkLines(t *testing.T) {
	all := parseBenchmarks([]byte(`goos: linux
BenchmarkDocument/codec=s2-2     	   20000	      1830 ns/op	 540.12 MB/s	       0 allocs/op
BenchmarkIndexing 	 1	0.95 ratio
Benchmarking is fun
PASS`))
	require.Equal(t, []goBenchmark{
		{"Document/codec=s2", map[string]float64{"ns/op": 1830, "MB/s": 540.12, "allocs/op": 0}},
		{"Indexing", map[string]float64{"ratio": 0.95}},
	}, all)
}

// TestAStepIsRunOnce measures a step for real, and then writes the page of its results.
func TestAStepIsRunOnce(t *testing.T) {
	t.Chdir("..") // where reports are made
	dir := t.TempDir()
	args := []string{"-size", "tiny", "-steps", "rules", "-results", filepath.Join(dir, "r.ndjson"), "-out", filepath.Join(dir, "page.md")}
	require.NoError(t, run(t.Context(), args))
	first, err := results.Read(filepath.Join(dir, "r.ndjson"))
	require.NoError(t, err)
	require.NotEmpty(t, first)
	require.NoError(t, run(t.Context(), args))
	again, err := results.Read(filepath.Join(dir, "r.ndjson"))
	require.NoError(t, err)
	require.Equal(t, first, again)
	page, err := os.ReadFile(filepath.Join(dir, "page.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| always merge | 505 M | 1 |")
	require.Equal(t, len(sections)-1, strings.Count(string(page), "**Skipped in this run.**"))
}

func TestStepsAreChosenByTheirTables(t *testing.T) {
	s, err := parse([]string{"-size", "full", "-steps", "growth,ladder", "-args", "-rounds 1"})
	require.NoError(t, err)
	require.Len(t, s.chosen, 4, "three sizes, and one more")
	require.Equal(t, []string{"-rounds", "1"}, s.more)
	s, err = parse(nil)
	require.NoError(t, err)
	require.Equal(t, len(steps), len(s.chosen))
	require.Equal(t, []string{"-histogram", "-num", "7", "-rounds", "1"},
		override([]string{"-rounds", "3", "-histogram", "-num", "7"}, []string{"-rounds", "1"}))
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"-size", "huge"}, {"-steps", "none"}, {"-args", "-rounds 1"}, {"more"}} {
		require.Error(t, run(t.Context(), args), args)
	}
	require.ErrorIs(t, run(t.Context(), []string{"-render", "-results", filepath.Join(t.TempDir(), "absent")}), os.ErrNotExist)
	require.NoError(t, run(t.Context(), []string{"-dry-run", "-results", filepath.Join(t.TempDir(), "r.ndjson")}))
}
