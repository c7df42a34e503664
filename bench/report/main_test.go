package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

// TestPublishedPages fails if bench/*.md or the table of README.md differ from what the
// published results give. "go run ./report -render" in bench rewrites them.
func TestPublishedPages(t *testing.T) {
	s := settings{root: filepath.Join("..", "..")}
	files, err := s.generate()
	require.NoError(t, err)
	require.Len(t, files, 3)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(s.root, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
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
		require.Equal(t, want, s.Cell("calls", "boxcar", phase, "ops/s", "number"), phase)
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

func TestGoals(t *testing.T) {
	require.True(t, reached(2, 2, "least"))
	require.False(t, reached(1.99, 2, "least"))
	require.True(t, reached(2, 2, "most"))
	require.True(t, reached(1, 2, "most"))
	require.False(t, reached(2.01, 2, "most"))
	p := &page{sets: []set{{}}}
	row, err := p.goal("a goal", "least", 5, "x", value(3), "a reason")
	require.NoError(t, err)
	require.Equal(t, "| a goal | ≥5.00x | **3.00x** | 1 |", row)
	_, err = p.goal("a goal", "about", 5, "x", value(3), "")
	require.Error(t, err)
}

// TestTablesHaveSteps checks that the templates name tables that steps make.
func TestTablesHaveSteps(t *testing.T) {
	names := regexp.MustCompile(`\(?(?:of|over|best|least|beats|race|phases|contestants|settings|matrix|list|cell) "([a-z]+)"|(?m)^([a-z,]+)$`)
	found := 0
	for _, match := range names.FindAllStringSubmatch(pageTemplate+sectionsTemplate, -1) {
		for table := range strings.SplitSeq(match[1]+match[2], ",") {
			require.Contains(t, stepNames(), table)
			found++
		}
	}
	require.Greater(t, found, 100)
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
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "bench"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "README.md"), []byte(tableBegin+tableEnd), 0o600))
	file := filepath.Join(root, "r.ndjson")
	args := []string{"-size", "tiny", "-steps", "rules", "-results", file, "-root", root}
	require.NoError(t, run(t.Context(), args))
	first, err := results.Read(file)
	require.NoError(t, err)
	require.NotEmpty(t, first)
	require.NoError(t, run(t.Context(), args))
	again, err := results.Read(file)
	require.NoError(t, err)
	require.Equal(t, first, again)
	page, err := os.ReadFile(filepath.Join(root, "bench", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| always merge |")
	require.Equal(t, strings.Count("\n"+sectionsTemplate, "\n## ")-1, strings.Count(string(page), "Not measured."))
}

// TestPublishMerges publishes two tables one after the other, then one of them again.
func TestPublishMerges(t *testing.T) {
	root := t.TempDir()
	for day, table := range []string{"calls", "rules", "calls", "calls"} {
		s := settings{root: root, file: filepath.Join(t.TempDir(), "r.ndjson")}
		f, err := results.Open(s.file)
		require.NoError(t, err)
		require.NoError(t, f.Add(results.Result{
			Key:  results.Key{Table: table, Contestant: "boxcar", Phase: "64", Round: 1},
			Date: time.Date(2026, 1, 1+day, 0, 0, 0, 0, time.UTC), Commit: strconv.Itoa(day), Machine: fmt.Sprintf("2 x %d, 8 GiB", min(day, 1)), // the first one has another processor
			Figures: map[string]float64{"ops/s": float64(day)},
		}))
		require.NoError(t, f.Close())
		require.NoError(t, s.publish())
	}
	sets, err := (&settings{root: root}).published()
	require.NoError(t, err)
	require.Len(t, sets, 2)
	require.Len(t, sets[0].all, 2)
	require.Equal(t, "3.00", sets[0].Cell("calls", "boxcar", "64", "ops/s", "number"))
	require.Equal(t, "0", sets[1].Cell("calls", "boxcar", "64", "ops/s", "number"))
	require.Equal(t, "1.00", sets[0].Cell("rules", "boxcar", "64", "ops/s", "number"))
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
	require.ErrorIs(t, run(t.Context(), []string{"-render", "-root", t.TempDir()}), os.ErrNotExist)
	require.NoError(t, run(t.Context(), []string{"-dry-run", "-results", filepath.Join(t.TempDir(), "r.ndjson")}))
}
