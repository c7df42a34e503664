//go:build simulation

package simulate

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/simulate/chance"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

var (
	seeds   = flag.Int("seeds", 20, "number of seeds of TestSeeds and TestPools")
	one     = flag.String("config", "", "file of a configuration for TestConfig")
	verbose = flag.Bool("log", false, "print the log of each run")
	divided = flag.Bool("divided", false, "run the seeds and cases in other processes, as many at a time as -parallel")
	hour    = flag.Bool("hour", false, "run TestHour too, which takes minutes")
	until   = flag.Duration("until", 0, "TestSeeds and TestPools end after so much processor time, or at the first failure; 0: after the seeds")
)

// Collections are rare, because a run allocates much, unless it takes more than heapBytes.
const (
	gcPercent = 400
	heapBytes = 2 << 30
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := Warm(); err != nil {
		panic(err)
	}
	// One processor: goroutines that run at the same instant have fewer orders.
	runtime.GOMAXPROCS(1)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(heapBytes)
	}
	os.Exit(m.Run())
}

// run runs a configuration. A failure prints it, with the shortest list of faults that still
// fails.
func run(t *testing.T, c Config) {
	t.Helper()
	r := inBubble(t, c)
	if *verbose {
		t.Log(r.Log)
	}
	if len(r.Violations) == 0 {
		t.Logf("%v, virtual time %v", r, r.Virtual)
		return
	}
	t.Errorf("%v\n%s", r, lastLines(r.Log))
	if *until > 0 {
		return
	}
	shortest := shorten(c, func(c Config) bool { return len(inBubble(t, c).Violations) > 0 })
	file := filepath.Join(os.TempDir(), fmt.Sprintf("simulation-%d.json", c.Seed))
	content, err := json.MarshalIndent(shortest, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	t.Errorf("%d of %d faults suffice: %v; run them with -run TestConfig -config %s", len(shortest.Faults), len(c.Faults), shortest.Faults, file)
}

func inBubble(t *testing.T, c Config) (r *Report) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, c.Seed)
	virtualtime.Test(t, func(t *testing.T) {
		var err error
		r, err = Run(c)
		require.NoError(t, err)
	})
	return r
}

// lastLines returns the end of a log.
func lastLines(log string) string { return log[max(0, len(log)-20_000):] }

// TestSeeds runs a fleet for each of several seeds in a row.
func TestSeeds(t *testing.T) { runSeeds(t, Draw) }

// TestPools runs servers and front ends without documents for each of several seeds in a row.
func TestPools(t *testing.T) { runSeeds(t, DrawPools) }

// With -short, seeds have at most shortRate records or calls a second, and cases of documents with more
// than shortWork of work are left out.
const (
	shortRate = 20
	shortWork = time.Minute
)

func runSeeds(t *testing.T, draw func(seed uint64) Config) {
	t.Helper()
	first, before := testseed.Seed(t), processorTime(t)
	if *divided {
		divide(t, first)
		return
	}
	spent := func() time.Duration { return processorTime(t) - before }
	for n := 0; n < *seeds || spent() < *until; n++ {
		passed := t.Run(fmt.Sprint(first+uint64(n)), func(t *testing.T) {
			c := draw(first + uint64(n))
			if testing.Short() {
				c.Rate = min(c.Rate, shortRate)
			}
			run(t, c)
		})
		if !passed && *until > 0 {
			t.Logf("found with seed %d of this run, after %v of processor time", n+1, spent())
			return
		}
	}
}

// seedsOfProcess is the number of seeds of each process of -divided.
const seedsOfProcess = 2

// divide runs the seeds in other processes: one uses one processor.
func divide(t *testing.T, first uint64) {
	t.Helper()
	name := t.Name()
	for n := 0; n < *seeds; n += seedsOfProcess {
		t.Run(fmt.Sprint("from ", first+uint64(n)), func(t *testing.T) {
			inProcess(t, name, "-seed", fmt.Sprint(first+uint64(n)), "-seeds", fmt.Sprint(min(seedsOfProcess, *seeds-n)))
		})
	}
}

// inProcess runs a test in another process, in parallel with other tests of this one.
func inProcess(t *testing.T, name string, args ...string) {
	t.Helper()
	t.Parallel()
	process := exec.Command(os.Args[0], append([]string{"-test.run", "^" + name + "$", fmt.Sprint("-test.short=", testing.Short()), fmt.Sprint("-log=", *verbose)}, args...)...)
	output, err := process.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// processorTime returns that of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestConfig runs the configuration of a file.
func TestConfig(t *testing.T) {
	if *one != "" {
		run(t, read(t, *one))
	}
}

// TestHour runs three columns of two servers for an hour, with faults, and logs the processor time. It is
// the measure of what a simulation costs.
func TestHour(t *testing.T) {
	if !*hour {
		t.Skip("it takes minutes of processor time: run with -hour, as make soak does")
	}
	c := Config{
		Seed: 1, Servers: 6, Shards: 4, Columns: 3, Zones: 2, Codec: "zstd", Increments: true, Cache: true,
		Memory: 32 << 20, IDs: 200, Rate: shortRate, SegmentBytes: 128 << 10, Work: time.Hour,
	}
	d := chance.New(c.Seed).Next("hour")
	c.Faults = drawFaults(&d, &c)
	before := processorTime(t)
	run(t, c)
	t.Logf("%v of processor time", processorTime(t)-before)
}

// TestCases runs configurations that have failed once. Their names say why.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := read(t, file)
			if testing.Short() && c.Pools == nil && c.Work > shortWork {
				t.Skip("it has more than a minute of work")
			}
			if *divided {
				inProcess(t, "TestConfig", "-config", file)
				return
			}
			run(t, c)
		})
	}
}

func read(t *testing.T, file string) (c Config) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &c))
	return c
}
