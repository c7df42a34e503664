package boxcar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/virtualtime"
)

// stalling returns a target that answers at once, except that its n-th call takes long.
func stalling(n int, long time.Duration) target {
	var calls atomic.Int64
	return func(_ context.Context, dst []byte) ([]byte, error) {
		if calls.Add(1) == int64(n) {
			time.Sleep(long)
		}
		return dst, nil
	}
}

// One response in a thousand takes 100 ms. Only the open loop includes the wait of the
// calls that were due meanwhile.
func TestBenchMeasuresFromDueTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := load{rate: 1000, duration: time.Second, timeout: time.Second, callers: 1, sleep: time.Sleep}
		r := l.run(t.Context(), stalling(500, 100*time.Millisecond))
		require.InDelta(t, 1000, r.Calls, 100)
		require.InDelta(t, 100, r.Busy, 30)
		require.Greater(t, r.Latency.P99, 80*time.Millisecond)
		require.Greater(t, r.Late.P99, 80*time.Millisecond)
		require.Less(t, r.Service.P99, time.Millisecond)
		require.InDelta(t, 100*time.Millisecond, r.Service.Max, float64(time.Millisecond))
		require.Zero(t, r.Unsent)

		l.callers = 200 // a caller is always free
		r = l.run(t.Context(), stalling(500, 100*time.Millisecond))
		require.Zero(t, r.Busy)
		require.Less(t, r.Late.Max, time.Microsecond)
		require.Less(t, r.Latency.P99, time.Millisecond)
	})
}

func TestBenchReportsUnsentCalls(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := load{rate: 1000, duration: time.Second, timeout: time.Second, callers: 1, sleep: time.Sleep}
		r := l.run(t.Context(), func(_ context.Context, dst []byte) ([]byte, error) {
			time.Sleep(10 * time.Millisecond)
			return dst, nil
		})
		require.InDelta(t, 200, r.Calls, 2, "a hundred a second, in the second and the timeout after it")
		require.InDelta(t, 1000, r.Calls+r.Unsent, 100)
	})
}

func TestBenchWarmsUpAndEndsWithItsContext(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		made := 0
		call := func(_ context.Context, dst []byte) ([]byte, error) { made++; return dst, nil }
		l := load{rate: 100, duration: time.Second, warmup: time.Second, timeout: time.Second, callers: 1, sleep: time.Sleep}
		r := l.run(t.Context(), call)
		require.EqualValues(t, made, 2*r.Calls)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		cut := l.run(ctx, call)
		require.InDelta(t, r.Calls/2, cut.Calls, 20)
		require.Equal(t, 500*time.Millisecond, cut.Elapsed)
		require.Zero(t, cut.Unsent, "calls that were not due are not missing")
	})
}

func TestBenchInAClosedLoop(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := load{duration: time.Second, timeout: time.Second, callers: 4}
		r := l.run(t.Context(), func(_ context.Context, dst []byte) ([]byte, error) {
			time.Sleep(10 * time.Millisecond)
			return dst, errors.New("broken")
		})
		require.EqualValues(t, 400, r.Calls)
		require.EqualValues(t, 400, r.Failed)
		require.Equal(t, map[string]int64{"broken": 400}, r.Errors)
		require.InDelta(t, 10*time.Millisecond, r.Latency.P50, 1e5)
		require.Less(t, r.Late.Max, time.Microsecond)
	})
}

func TestBenchOfEchoesAndDocuments(t *testing.T) {
	address := serve(t, newQueue(t, map[string]string{"a": "{}", "b": "[]"}))
	bench := func(stdin string, args ...string) (r report) {
		t.Helper()
		args = append([]string{"bench", "--servers", address, "--duration", "200ms", "--warmup", "100ms", "--json"}, args...)
		result := run(t.Context(), stdin, args...)
		require.Equal(t, cli.ExitOK, result.status, result.stderr)
		require.NoError(t, json.Unmarshal([]byte(result.stdout), &r))
		require.Positive(t, r.Calls)
		require.Zero(t, r.Failed, r.Errors)
		require.LessOrEqual(t, r.Latency.P50, r.Latency.P99)
		return r
	}
	r := bench("", "--rate", "500", "--size", "2KiB", "--callers", "8")
	require.Equal(t, "echoes of 2 KiB", r.What)
	require.Equal(t, 8, r.Slots)
	require.InDelta(t, 500, r.Rate, 0)
	bench("", "--closed", "--callers", "3")

	file := filepath.Join(t.TempDir(), "ids")
	require.NoError(t, os.WriteFile(file, []byte("a\nb\n"), 0o600))
	require.Zero(t, bench("", "--rate", "200", "--collection", "jobs", "--ids", file).NotFound)
	r = bench("never\n", "--closed", "--collection", "jobs", "--ids", "-")
	require.Equal(t, r.Calls, r.NotFound)

	people := run(t.Context(), "", "bench", "--servers", address, "--duration", "100ms", "--warmup", "0s", "--rate", "500", "--callers", "4")
	require.Equal(t, cli.ExitOK, people.status, people.stderr)
	for _, want := range []string{"echoes of 1 KiB: 500 calls/s due, 4 callers", "p99.9", "latency", "service", "late"} {
		require.Contains(t, people.stdout, want)
	}
}

func TestBenchInvalidFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--rate 0":                            "--rate 0: must be more than 0",
		"--rate NaN":                          "--rate NaN: must be more than 0",
		"--rate 10 --closed":                  "--closed excludes --rate",
		"--duration 0s":                       "--duration 0s: must be more than 0",
		"--warmup -1s":                        "--warmup -1s",
		"--timeout 0s":                        "--timeout 0s",
		"--callers 0":                         "--callers 0",
		"--pool-size -1":                      "--pool-size -1",
		"--size 1GiB":                         "--size 1GiB: at most 17 MiB",
		"--ids x":                             "--collection and --ids go together",
		"--collection x":                      "--collection and --ids go together",
		"--ids x --collection x --size 4096B": "give one of them",
	} {
		r := run(t.Context(), "", append([]string{"bench"}, strings.Fields(args)...)...)
		require.Equal(t, cli.ExitUsage, r.status, args)
		require.Contains(t, r.stderr, want)
	}
	for stdin, want := range map[string]string{
		"":                               "standard input has no ids",
		strings.Repeat("x", 2000) + "\n": "standard input:1: an id has at most",
	} {
		r := run(t.Context(), stdin, "bench", "--ids", "-", "--collection", "x")
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.stderr, want)
	}
	r := run(t.Context(), "", "bench", "--servers", "127.0.0.1:1", "--timeout", "50ms")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, fmt.Sprintf("no server of [127.0.0.1:1] answered within %s", 50*time.Millisecond))
}

// On a terminal the line shows the progress, and is erased at the end.
func TestBenchShowsItsProgress(t *testing.T) {
	require.Equal(t, "\r\x1b[Kmeasuring 3,000 calls, 1,500/s, 9s left", callsLine(3000, 2*time.Second, 11*time.Second))
	require.Equal(t, "\r\x1b[Kmeasuring 0 calls, 0/s, 0s left", callsLine(0, 0, 0))
	var out bytes.Buffer
	call, stop := showCalls(&cli.Env{Stderr: &out, Now: time.Now}, time.Second, func(_ context.Context, dst []byte) ([]byte, error) { return dst, nil })
	_, err := call(t.Context(), nil)
	require.NoError(t, err)
	stop()
	require.True(t, strings.HasSuffix(out.String(), "\r\x1b[K"))
}
