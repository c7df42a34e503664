package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func made(contestant string, round int, rate float64) Result {
	return Result{
		Key:     Key{Bench: "b", Table: "t", Contestant: contestant, Phase: "p", Round: round},
		Figures: map[string]float64{"ops/s": rate},
	}
}

func TestAFileIsResumed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.ndjson")
	f, err := Open(name)
	require.NoError(t, err)
	require.NoError(t, f.Add(made("a", 1, 10)))
	require.NoError(t, f.Add(made("a", 2, 20)))
	require.NoError(t, f.Close())

	// A crash cuts the last line off.
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, content[:len(content)-7], 0o600))
	f, err = Open(name)
	require.NoError(t, err)
	require.True(t, f.Has(made("a", 1, 0).Key))
	require.False(t, f.Has(made("a", 2, 0).Key))
	require.NoError(t, f.Add(made("a", 2, 21)))
	found, ok := f.Find(made("a", 2, 0).Key)
	require.True(t, ok)
	require.Equal(t, 21.0, found.Figures["ops/s"])
	_, ok = f.Find(made("b", 2, 0).Key)
	require.False(t, ok)
	require.NoError(t, f.Close())

	all, err := Read(name)
	require.NoError(t, err)
	require.Equal(t, []Result{made("a", 1, 10), made("a", 2, 21)}, all)
}

func TestFilesAreMerged(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, all ...Result) string {
		name = filepath.Join(dir, name)
		f, err := Open(name)
		require.NoError(t, err)
		for _, r := range all {
			require.NoError(t, f.Add(r))
		}
		require.NoError(t, f.Close())
		return name
	}
	first := write("first", made("a", 1, 10), made("b", 1, 30))
	second := write("second", made("a", 2, 20), made("a", 1, 11))
	merged, err := Read(first, second)
	require.NoError(t, err)
	require.Equal(t, []Result{made("a", 1, 11), made("b", 1, 30), made("a", 2, 20)}, merged)

	older := made("b", 1, 29)
	older.Date = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	newer := older
	newer.Date = older.Date.Add(time.Second)
	merged, err = Read(first, write("newer", newer), write("older", older))
	require.NoError(t, err)
	require.Equal(t, []Result{made("a", 1, 10), newer}, merged)

	require.NoError(t, os.WriteFile(first, []byte("{}\nnonsense\n"), 0o600))
	_, err = Read(first)
	require.ErrorContains(t, err, "first:2: not a result")
	_, err = Open(first)
	require.ErrorContains(t, err, "first:2: not a result")
	_, err = Read(filepath.Join(dir, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAKeeperMeasuresOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.ndjson")
	measured := 0
	measure := func() (map[string]float64, error) {
		measured++
		return map[string]float64{"ops/s": float64(measured), "others": 0.5}, nil
	}
	for range 2 {
		k, err := NewKeeper("b", "t", "size=1", name)
		require.NoError(t, err)
		for round := 1; round <= 2; round++ {
			figures, err := k.Measure("c", "p", round, measure)
			require.NoError(t, err)
			require.Equal(t, float64(round), figures["ops/s"])
			require.True(t, k.Has("c", "p", round))
		}
		require.False(t, k.Has("c", "p", 3))
		_, err = k.Measure("c", "p", 3, func() (map[string]float64, error) { return nil, os.ErrClosed })
		require.ErrorIs(t, err, os.ErrClosed)
		require.ErrorContains(t, k.Add(k.Result("c", "p", 3, nil)), "no figures")
		require.NoError(t, k.Close())
	}
	require.Equal(t, 2, measured)
	all, err := Read(name)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, []string{"others took 50 % of the processors"}, all[1].Warnings)
	require.NotEmpty(t, all[1].Commit)
	require.NotEmpty(t, all[1].Command)

	// Other settings are another measurement.
	k, err := NewKeeper("b", "t", "size=2", name)
	require.NoError(t, err)
	require.False(t, k.Has("c", "p", 1))
	require.NoError(t, k.Close())
	k, err = NewKeeper("b", "t", "", "")
	require.NoError(t, err)
	require.NoError(t, k.Rounds(2, "p", []string{"c", "d"}, func(int) (map[string]float64, error) { return measure() }))
	require.Equal(t, 6, measured)
	var out strings.Builder
	require.NoError(t, k.Print(&out, "absent", "ops/s"))
	require.Contains(t, out.String(), "\n  p  ops/s  ratio  least  greatest  rounds\n  c      4   1.00      3         5       2\n  d      5   0.80      4         6       2\n")
	require.NoError(t, k.Close())
}

func TestSpread(t *testing.T) {
	require.Equal(t, Spread{2, 1, 9}, SpreadOf([]float64{9, 1, 2}))
	require.Equal(t, Spread{3, 1, 9}, SpreadOf([]float64{9, 1, 2, 4}))
	require.Equal(t, Spread{7, 7, 7}, SpreadOf([]float64{7}))
}

func TestPercentiles(t *testing.T) {
	var durations []time.Duration
	for i := range 1001 {
		durations = append(durations, time.Duration(1000-i))
	}
	figures := map[string]float64{}
	AddPercentiles(figures, "", durations)
	AddPercentiles(figures, "one ", []time.Duration{7})
	AddPercentiles(figures, "no ", nil)
	require.Equal(t, map[string]float64{
		"p50 ns": 500, "p90 ns": 900, "p99 ns": 990, "p999 ns": 999, "one p50 ns": 7, "one p90 ns": 7, "one p99 ns": 7, "one p999 ns": 7,
		"no p50 ns": 0, "no p90 ns": 0, "no p99 ns": 0, "no p999 ns": 0,
	}, figures)
}

func TestCommandsAreThoseThatOthersType(t *testing.T) {
	args := []string{"/tmp/x/docbench", "-made", "500", "-results", "/r.ndjson", "-table", "documents", "/home/records.ndjson.gz"}
	require.Equal(t, "docbench -made 500 records.ndjson.gz", commandOf(args))
	require.Equal(t, "dbbench", commandOf([]string{"dbbench", "-table"}))
}
