package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/cgroup"
	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
	"docstore/bench/internal/zipf"
)

func TestMain(m *testing.M) { process.TestMain(m, main) }

// TestWrongDocumentIsFound fetches documents that differ from those of the corpus.
func TestWrongDocumentIsFound(t *testing.T) {
	served, want := &corpus{}, &corpus{}
	for _, id := range []string{"a", "b", "c"} {
		served.add(id, []byte(`{"id":"`+id+`"}`))
		want.add(id, []byte(`{"id":"`+id+`","x":1}`))
	}
	for _, batch := range []int{1, 4} {
		l := load{corpus: served, callers: 2, batch: batch, duration: time.Millisecond}
		_, err := l.measure(madeClient{served}, nil)
		require.NoError(t, err)
		l.corpus = want
		_, err = l.measure(madeClient{served}, nil)
		require.ErrorContains(t, err, "other bytes than its line")
	}
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"-callers", "0", "x"}, {"-batch", "", "x"}, {"-rounds", "0", "x"}, {"-stores", "abacus", "x"}, {"-distribution", "skewed", "x"}, {"-made", "-1"}, {"-beside", "noise", "x"}, {"-memory_limit", "-1", "x"},
		{"-stores", "rueidis", "-memory_limit", "1000000", "x"}, {"-arrival_rate", "0", "x"}, {"-beside", "updater,arrivals", "x"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
	require.Error(t, run(t.Context(), []string{filepath.Join(t.TempDir(), "absent.ndjson")}))
}

// TestStores fills each store that is installed with a few made documents, and fetches
// them, each compared with what it should be.
func TestStores(t *testing.T) {
	documents := &corpus{made: 100}
	c := &corpus{}
	require.NoError(t, documents.each(func(id string, line []byte) error {
		c.add(id, line)
		return nil
	}))
	build := &rig{dir: t.TempDir()}
	_, err := build.command("docserviced")
	require.NoError(t, err)
	for _, name := range storeNames() {
		t.Run(name, func(t *testing.T) {
			s := stores[name].open(&rig{dir: t.TempDir(), bin: build.bin}, name)
			_, err := s.load(t.Context(), c)
			if missing := (missingError{}); errors.As(err, &missing) {
				t.Skip(missing)
			}
			defer func() { require.NoError(t, s.stop()) }()
			require.NoError(t, err)
			client, err := s.client(3)
			require.NoError(t, err)
			for _, batch := range []int{1, 7} {
				l := load{corpus: c, zipf: zipf.New(100), callers: 3, batch: batch, duration: 10 * time.Millisecond}
				f, err := l.measure(client, s.processes())
				require.NoError(t, err)
				require.Positive(t, f["documents/s"])
			}
			_, err = client.get(t.Context(), nil, "missing")
			require.Error(t, err)
			require.NoError(t, client.close())
			require.Positive(t, process.AnonymousBytes(s.processes()))
		})
	}
}

// TestBesideOthers measures while the updater appends and while segments arrive, and then resumes.
func TestBesideOthers(t *testing.T) {
	for what, figure := range map[string]string{besideUpdater: "updater cpu", besideArrivals: "segments/s"} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "results.ndjson")
			args := []string{
				"-stores", "docstore", "-made", "3000", "-callers", "2", "-batch", "1", "-distribution", "uniform,zipfian",
				"-beside", "nothing," + what, "-arrival_rate", "20000", "-duration", "300ms", "-rounds", "1",
				"-results", name, "-table", "test",
			}
			require.NoError(t, run(t.Context(), args))
			all, err := results.Read(name)
			require.NoError(t, err)
			require.Len(t, all, 5)
			require.Equal(t, phaseLoad, all[0].Phase)
			require.Positive(t, all[0].Figures["queue bytes"])
			require.Positive(t, all[0].Figures["first ready seconds"])
			require.Equal(t, "2 callers, batches of 1, uniform, beside "+what, all[2].Phase)
			require.Positive(t, all[2].Figures[figure])
			require.NoError(t, run(t.Context(), args))
			again, err := results.Read(name)
			require.NoError(t, err)
			require.Equal(t, all, again, "nothing is measured again")
		})
	}
}

// TestInBoundedMemory uses more documents than memory.
func TestInBoundedMemory(t *testing.T) {
	dir, err := cgroup.Make(1 << 20)
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.Remove(dir))
	if _, err := installed("memcached", "memcached"); err != nil {
		t.Skip(err)
	}
	name := filepath.Join(t.TempDir(), "results.ndjson")
	require.NoError(t, run(t.Context(), []string{
		"-stores", "docstore,memcached,memcached+pebble", "-made", "80000", "-memory_limit", "67108864", "-callers", "2", "-batch", "1,5",
		"-duration", "100ms", "-warmup", "50ms", "-rounds", "1", "-results", name,
	}))
	all, err := results.Read(name)
	require.NoError(t, err)
	require.Len(t, all, 9)
	missing := map[string]float64{}
	for _, r := range all {
		missing[r.Contestant] += r.Figures["misses"]
	}
	require.Positive(t, missing["memcached"], "memcached cannot hold all")
	require.Greater(t, missing["memcached+pebble"], missing["memcached"], "it has less memory, as Pebble has a share")
	require.Zero(t, missing["docstore"])
}

func TestWhatMemcachedRefuses(t *testing.T) {
	require.True(t, refused(errors.New(`memcache: unexpected response line from "set": "SERVER_ERROR out of memory storing object\r\n"`)))
	require.False(t, refused(errors.New("memcache: connect timeout")))
	require.False(t, refused(nil))
}
