package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/cgroup"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
)

func TestMain(m *testing.M) { process.TestMain(m, main) }

// soon is short: the figures are not used.
const soon = "1ms"

// everyPhase lists all workloads; those that others depend on come first.
var everyPhase = []string{
	"fillseq", "readrandom", "readmissing", "open", "overwrite", "fillsync", "readrandom", "fillbatch", "readseq",
	"fillrandom", "readrandom", "readrandom:2", "readmissing", "readhot", "readseq", "readreverse", "seekrandom",
	"readwhilewriting", "readwhilescanning", "seekrandomwhilewriting",
	"overwrite", "readrandom", "deleterandom", "readrandom", "readseq", "open", "overwrite", "readseq",
	"ycsba", "ycsbb", "ycsbc", "ycsbd:2", "ycsbe", "ycsbewhilewriting", "ycsbf", "readseq",
}

func TestEveryWorkloadOnEveryEngine(t *testing.T) {
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			s, err := parse([]string{
				"-engine", engine, "-num", "3000", "-db", t.TempDir(), "-quiet", soon,
				"-histogram", "-benchmarks", strings.Join(everyPhase, ","),
			})
			require.NoError(t, err)
			results, err := s.measure(t.Context()) // checks all entries at the end
			require.NoError(t, err)
			require.Len(t, results, len(everyPhase))
			for _, r := range results {
				require.Positive(t, r.Figures["ops/s"], r.Phase)
			}
		})
	}
}

// TestKeysOfManyShapes fills, reads and checks stores whose keys share much, little and
// nothing.
func TestKeysOfManyShapes(t *testing.T) {
	for shape, want := range map[string]struct{ first, second string }{
		"-key_size 8":                    {"\x00\x00\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x02"},
		"-key_size 10":                   {"pr\x00\x00\x00\x00\x00\x00\x00\x00", "pr\x00\x00\x00\x00\x00\x00\x00\x02"},
		"-key_size 12 -prefix_size 1":    {"p\x00\x00\x00\x00\x00\x00\x00\x00\xb4\x56\xbc", "p\x00\x00\x00\x00\x00\x00\x00\x02\x0b\x51\x81"},
		"-key_size 40 -prefix_size 0":    {},
		"-key_size 40 -prefix_size 32":   {},
		"-key_size 1000 -prefix_size 50": {},
	} {
		t.Run(shape, func(t *testing.T) {
			s, err := parse(append(strings.Fields(shape), "-num", "500", "-value_size", "20", "-db", t.TempDir(), "-quiet", soon,
				"-benchmarks", "fillseq,readreverse,readrandom,readmissing,fillrandom,readrandom,readmissing,readseq,ycsbe"))
			require.NoError(t, err)
			_, err = s.measure(t.Context())
			require.NoError(t, err)
			if want.first != "" {
				d := s.stored()
				d.sequential = true
				require.Equal(t, want.first, string(d.key(nil, 0)))
				require.Equal(t, want.second, string(d.key(nil, 1)))
			}
		})
	}
}

func TestResultsAreResumed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.ndjson")
	args := []string{
		"-engine", "docstore,pebble", "-num", "100", "-rounds", "2", "-quiet", soon, "-benchmarks", "fillrandom,readrandom",
		"-results", name, "-table", "test", "-histogram", "-seed", "7",
	}
	require.NoError(t, run(t.Context(), args))
	first, err := results.Read(name)
	require.NoError(t, err)
	require.Len(t, first, 8)
	for _, r := range first {
		require.Positive(t, r.Figures["ops/s"])
		require.Contains(t, r.Settings, "seed=7")
		require.Contains(t, r.Settings, " histogram")
		require.NotEmpty(t, r.Machine)
	}
	require.Positive(t, first[0].Figures["p99 ns"])
	require.NoError(t, run(t.Context(), args))
	again, err := results.Read(name)
	require.NoError(t, err)
	require.Equal(t, first, again, "nothing is measured again")
}

func TestWorkloadsThatDoNotFit(t *testing.T) {
	for _, phases := range []string{"fillrandom,deleterandom,ycsba", "fillrandom,deleterandom,deleterandom", "fillrandom,ycsbd,overwrite"} {
		s, err := parse([]string{"-num", "1000", "-quiet", soon, "-benchmarks", phases})
		require.NoError(t, err)
		_, err = s.measure(t.Context())
		require.ErrorContains(t, err, "fill")
	}
}

// lossyEngine forgets every hundredth write.
type lossyEngine struct {
	engine
	writes int
}

func (e *lossyEngine) set(key, value []byte) error {
	if e.writes++; e.writes%100 == 0 {
		return nil
	}
	return e.engine.set(key, value)
}

func TestLossIsFound(t *testing.T) {
	s, err := parse([]string{"-num", "1000", "-quiet", soon, "-db", t.TempDir()})
	require.NoError(t, err)
	b := &bench{settings: s, dir: filepath.Join(s.dir, "docstore"), data: data{seed: 1, keyBytes: 8, valueBytes: 96}}
	_, err = b.run("fillrandom")
	require.NoError(t, err)
	require.NoError(t, b.check())
	b.engine = &lossyEngine{engine: b.engine}
	_, err = b.run("overwrite")
	require.NoError(t, err)
	require.ErrorContains(t, b.check(), "another value")
	require.NoError(t, b.engine.close())
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"-num", "0"}, {"-reads", "5"}, {"more"}, {"-num", "2000000000"}, {"-key_size", "16", "-prefix_size", "9"}, {"-prefix_size", "-2"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
	require.Error(t, run(t.Context(), []string{"-engine", "none", "-num", "10"}))
	require.Error(t, run(t.Context(), []string{"-benchmarks", "none", "-num", "10"}))
}

func TestRivalsThatAreNotBuiltInAreSkipped(t *testing.T) {
	if engines["lmdb"] != nil {
		t.Skip("built with cgo_rivals")
	}
	require.Equal(t, []string{"docstore"}, available([]string{"docstore", "lmdb"}))
	require.Error(t, run(t.Context(), []string{"-engine", "lmdb", "-num", "10"}))
}

func TestMemoryIsBounded(t *testing.T) {
	dir, err := cgroup.Make(64 << 20)
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.Remove(dir))
	require.NoError(t, run(t.Context(), []string{"-engine", "docstore", "-num", "1000", "-memory_limit", "134217728", "-benchmarks", "fillrandom,readrandom"}))
}
