//go:build linux

package discovery

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprogram"
)

// A dnsmasq is a real DNS server on the loopback address.
type dnsmasq struct {
	program        string
	address, hosts string
	command        *exec.Cmd
}

// startDNS runs a server with the given numbers of A and AAAA records of search.test, and
// of SRV records of _boxcar._tcp.search.test.
func startDNS(t testing.TB, four, six, services int) *dnsmasq {
	t.Helper()
	program := testprogram.Path(t, "dnsmasq")
	dir := t.TempDir()
	s := &dnsmasq{program: program, hosts: filepath.Join(dir, "hosts")}
	s.write(t, four, six)
	var config strings.Builder
	for i := range services {
		fmt.Fprintf(&config, "srv-host=_boxcar._tcp.search.test,be-%d.search.test,7070,0,5\n", i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "conf"), []byte(config.String()), 0o600))
	for !s.listen(t, dir) {
		t.Logf("the port of %s was taken meanwhile", s.address)
	}
	return s
}

// listen starts the server on a free port and waits until it answers. It returns false
// if the server has exited because the port was taken.
func (s *dnsmasq) listen(t testing.TB, dir string) bool {
	probe, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = probe.LocalAddr().String()
	_, port, err := net.SplitHostPort(s.address)
	require.NoError(t, err)
	require.NoError(t, probe.Close())
	s.command = exec.Command(s.program, "--no-daemon", "--conf-file="+filepath.Join(dir, "conf"), "--addn-hosts="+s.hosts,
		"--no-hosts", "--no-resolv", "--local=/test/", "--listen-address=127.0.0.1", "--bind-interfaces", "--port="+port)
	require.NoError(t, s.command.Start())
	command, ended := s.command, make(chan struct{})
	go func() {
		_ = command.Wait() // killed, or the port was taken
		close(ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have exited
		<-ended
	})
	for lookup := newDNS(optionsFor(s.address), nil).(dns); ; {
		if _, err := lookup.resolver.LookupHost(t.Context(), "ready.test"); err == nil {
			return true
		}
		require.NoError(t, t.Context().Err())
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// write writes the records of search.test.
func (s *dnsmasq) write(t testing.TB, four, six int) {
	text := []byte("127.0.0.1 ready.test\n")
	for i := range four {
		text = fmt.Appendf(text, "10.0.%d.%d search.test\n", i/250, 1+i%250)
	}
	for i := range six {
		text = fmt.Appendf(text, "fd00::%x search.test\n", 1+i)
	}
	require.NoError(t, os.WriteFile(s.hosts, text, 0o600))
}

const benchService = "_boxcar._tcp.search.test."

// A source follows a real server's answers, also those that are too long for UDP.
func TestRealDNS(t *testing.T) {
	s := startDNS(t, 100, 50, 500)
	w := watchDNS(t, DNS("search.test:7070", optionsFor(s.address)))
	require.Len(t, (<-w.updates).Servers, 150)
	s.write(t, 3, 0)
	require.NoError(t, s.command.Process.Signal(syscall.SIGHUP))
	snapshot := <-w.updates
	for len(snapshot.Servers) > 3 {
		snapshot = <-w.updates // the one before had the answer of only one query
	}
	require.Equal(t, []Server{{Address: "10.0.0.1:7070"}, {1, "10.0.0.2:7070", 0, ""}, {2, "10.0.0.3:7070", 0, ""}}, snapshot.Servers)

	services := <-watchDNS(t, SRV(benchService, optionsFor(s.address))).updates
	require.Equal(t, 500, services.Numbers)
	for _, server := range services.Servers {
		require.Equal(t, Server{server.Number, fmt.Sprintf("be-%d.search.test:7070", server.Number), 5, ""}, server)
	}
}

// BenchmarkDNS measures one query for A and AAAA records or for SRV records. An answer
// has at most 64 KiB: "got" is the number of servers in it.
func BenchmarkDNS(b *testing.B) {
	for _, x := range []struct{ four, services int }{{10, 10}, {1000, 500}, {4000, 1000}, {4200, 2800}} {
		s := startDNS(b, x.four, 0, x.services)
		for _, of := range []struct {
			name   string
			source Source
		}{
			{fmt.Sprintf("A/records=%d", x.four), DNS("search.test:7070", optionsFor(s.address))},
			{fmt.Sprintf("SRV/records=%d", x.services), SRV(benchService, optionsFor(s.address))},
		} {
			b.Run("type="+of.name, func(b *testing.B) {
				lookup, got := of.source.(dns), 0
				defer reportProcessorTime(b)()
				for b.Loop() {
					servers, err := lookup.lookup(context.Background(), lookup.resolver)
					require.NoError(b, err)
					got = len(servers)
				}
				b.ReportMetric(float64(got), "got")
			})
		}
	}
}
