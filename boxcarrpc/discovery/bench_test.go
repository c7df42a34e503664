//go:build linux

package discovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const benchPattern = "be-%d.search:7070"

// BenchmarkWatch measures the time from Watch to the first snapshot.
func BenchmarkWatch(b *testing.B) {
	for _, servers := range []int{1000, 100_000, 1_000_000} {
		addresses := make([]string, servers)
		for i := range addresses {
			addresses[i] = fmt.Sprintf(benchPattern, i)
		}
		path := filepath.Join(b.TempDir(), "servers")
		writeServers(b, path, servers)
		for _, x := range []struct {
			name   string
			source Source
		}{{"static", Static(addresses...)}, {"pattern", Pattern(benchPattern, servers)}, {"file", File(path)}} {
			b.Run(fmt.Sprintf("source=%s/servers=%d", x.name, servers), func(b *testing.B) {
				b.ReportAllocs()
				defer reportProcessorTime(b)()
				for b.Loop() {
					ctx, cancel := context.WithCancel(b.Context())
					err := x.source.Watch(ctx, func(s Snapshot) {
						require.Len(b, s.Servers, servers)
						cancel()
					})
					require.ErrorIs(b, err, context.Canceled)
				}
			})
		}
	}
}

// BenchmarkFileChange measures the time from renaming a new file over the old one, at a
// random moment, to the snapshot.
func BenchmarkFileChange(b *testing.B) {
	for _, servers := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "servers")
			writeServers(b, path, servers)
			ctx, cancel := context.WithCancel(b.Context())
			updates, ended := make(chan int), make(chan error)
			go func() { ended <- File(path).Watch(ctx, func(s Snapshot) { updates <- len(s.Servers) }) }()
			require.Equal(b, servers, <-updates)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				more := servers + 1 - i%2
				writeServers(b, path+".new", more)
				time.Sleep(rand.N(filePollInterval))
				b.StartTimer()
				require.NoError(b, os.Rename(path+".new", path))
				require.Equal(b, more, <-updates)
			}
			cancel()
			require.ErrorIs(b, <-ended, context.Canceled)
		})
	}
}

// reportProcessorTime starts to measure the processor time of this process, which is
// more reliable than elapsed time on a busy machine. The result reports it.
func reportProcessorTime(b *testing.B) func() {
	before := processorTime(b)
	return func() {
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
	}
}

func processorTime(tb testing.TB) time.Duration {
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// writeServers writes a list of servers.
func writeServers(tb testing.TB, path string, servers int) {
	tb.Helper()
	var text []byte
	for i := range servers {
		text = fmt.Appendf(text, benchPattern+"\n", i)
	}
	require.NoError(tb, os.WriteFile(path, text, 0o600))
}
