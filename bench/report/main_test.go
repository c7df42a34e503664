package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

// TestPublishedPages fails if docs/benchmarks*.md or the table of README.md differ from what the
// published results give. "go run ./report -render" in bench rewrites them.
func TestPublishedPages(t *testing.T) {
	sets, err := published("published")
	require.NoError(t, err)
	for path, page := range pages(filepath.Join("..", "..", "docs", "benchmarks.md"), sets) {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(page))
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	require.Equal(t, string(readme), string(replaceTable(readme, sets[0].summary())))
}

func TestCondense(t *testing.T) {
	result := func(phase string, round int, rate, others float64) results.Result {
		return results.Result{Key: results.Key{Table: "calls", Contestant: "boxcar", Phase: phase, Round: round}, Figures: map[string]float64{"ops/s": rate, "others": others}}
	}
	s := set{condense([]results.Result{
		result("quiet", 1, 90, 0), result("quiet", 2, 100, 0), result("quiet", 3, 120, 0),
		result("wide", 1, 60, 0), result("wide", 2, 120, 0), result("wide", 3, 100, 0),
		result("busy", 1, 100, 0.5),
	})}
	require.Len(t, s.all, 3)
	for phase, want := range map[string]string{"quiet": "100", "wide": "100*", "busy": "100*"} {
		require.Equal(t, want, s.text("calls", "boxcar", phase, "ops/s", number), phase)
	}
}

func TestFigures(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.123: "0.12", 9.994: "9.99", 9.996: "10.0", 99.96: "100", 1234: "1234", 12345: "12.3k", 999_999: "1000k", 1_234_567: "1.23M", 18_700_000: "18.7M"} {
		require.Equal(t, want, number(f))
	}
	for ns, want := range map[float64]string{250: "250ns", 41_200: "41.2us", 5_800_000: "5.80ms", 3e9: "3.00s"} {
		require.Equal(t, want, duration(ns))
	}
	for f, want := range map[float64]string{999: "999", 30_749: "30,700", 1_234_567: "1,230,000"} {
		require.Equal(t, want, whole(f))
	}
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

// TestGoalsAndReasons checks that reasons, races and sections name existing goals and steps.
func TestGoalsAndReasons(t *testing.T) {
	known := map[string]bool{}
	for _, g := range goals {
		key := g.area + ": " + g.text
		require.False(t, known[key], key)
		known[key] = true
	}
	for _, reason := range reasons {
		for _, key := range reason.goals {
			require.True(t, known[key], "reason without a goal: %s", key)
		}
	}
	for _, r := range races {
		require.Contains(t, stepNames(), r.table)
	}
	for _, s := range sections {
		for _, table := range s.tables {
			require.Contains(t, stepNames(), table)
		}
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

// TestStepRunsOnce runs a step twice: the second run measures nothing.
func TestStepRunsOnce(t *testing.T) {
	t.Chdir("..") // where reports are made
	dir := t.TempDir()
	args := []string{"-size", "tiny", "-steps", "rules", "-results", filepath.Join(dir, "r.ndjson"), "-out", filepath.Join(dir, "page.md"), "-published", filepath.Join(dir, "published"), "-readme", filepath.Join(dir, "README.md")}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), nil, 0o600))
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
	require.Contains(t, string(page), "| always merge |")
	require.Equal(t, len(sections)-1, strings.Count(string(page), "Not measured."))
}

func TestStepsFlag(t *testing.T) {
	s, err := parse([]string{"-size", "full", "-steps", "growth,ladder", "-args", "-rounds 1"})
	require.NoError(t, err)
	require.Len(t, s.chosen, 4, "growth has three steps")
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
	require.ErrorIs(t, run(t.Context(), []string{"-render", "-published", filepath.Join(t.TempDir(), "absent")}), os.ErrNotExist)
	require.NoError(t, run(t.Context(), []string{"-dry-run", "-results", filepath.Join(t.TempDir(), "r.ndjson")}))
}
