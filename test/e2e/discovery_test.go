//go:build linux

package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprocess"
)

// TestServersAreFound registers daemons in a real etcd, and in a gossip cluster. boxcar finds
// all running daemons there, and the remaining one after a kill.
func TestServersAreFound(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:100]
	queue := t.TempDir()
	sealSegment(t, queue, documents)
	etcd := "etcd://" + startEtcd(t) + "/search"
	one, two := freeport.Address(t), freeport.Address(t)
	for _, x := range []struct {
		name    string
		servers string    // --servers of boxcar
		enter   [2]string // registration of the daemons
	}{
		{"etcd", etcd, [2]string{etcd, etcd}},
		{"gossip", "gossip://" + one, [2]string{"gossip://" + one + "?bind=" + one, "gossip://" + one + "?bind=" + two}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			boxcar := func(args ...string) (string, error) {
				out, err := exec.Command(filepath.Join(binaries, "boxcar"), append(args, "--servers", x.servers)...).CombinedOutput()
				return string(out), err
			}
			listed := func(want ...*daemon) {
				t.Helper()
				for ; ; time.Sleep(testprocess.PollInterval) {
					out, err := boxcar("slots") // fails if a killed daemon is listed
					found := 0
					for _, d := range want {
						found += strings.Count(out, d.boxcar+" (")
					}
					if err == nil && found == len(want) && found == strings.Count(out, "lowest free") {
						return
					}
				}
			}
			get := func() {
				t.Helper()
				out, err := boxcar("get", "--zone", "eu-1a", "--timeout", "30s", "--collection", collectionName, documents[7].id)
				require.NoError(t, err, out)
				require.Equal(t, string(documents[7].line)+"\n", out)
			}
			var daemons []*daemon
			for _, target := range x.enter {
				daemons = append(daemons, startDaemonWith(t, queue, t.TempDir(), "--discovery", target))
			}
			listed(daemons...)
			get()
			daemons[1].Kill()
			get() // although the killed daemon is listed
			listed(daemons[0])
			daemons[1].restart(t)
			listed(daemons...)
			daemons[1].Stop(t)
			listed(daemons[0])
			get()
		})
	}
}

// Daemons of two zones announce them. The requests of a client stay in its zone, go to the
// other while the zone's daemon is down, and return; boxcar slots shows how many leave.
func TestZones(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:100]
	queue := t.TempDir()
	sealSegment(t, queue, documents)
	target := "etcd://" + startEtcd(t) + "/search"
	near := startDaemonWith(t, queue, t.TempDir(), "--discovery", target, "--zone", "eu-1a")
	startDaemonWith(t, queue, t.TempDir(), "--discovery", target, "--zone", "eu-1b")
	boxcar := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(filepath.Join(binaries, "boxcar"), append(args, "--servers", target)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	for listed := false; !listed; time.Sleep(testprocess.PollInterval) {
		out, err := exec.Command(filepath.Join(binaries, "boxcar"), "slots", "--servers", target).CombinedOutput()
		listed = err == nil && strings.Count(string(out), "lowest free") == 2
	}
	// Of each daemon: the requests, and how many of them come from other zones, in percent.
	share := func(zone string) (requests, percent float64) {
		out := boxcar("slots")
		match := regexp.MustCompile(`zone ` + zone + `, ([\d.]+) % of ([\d,]+) requests? from other zones`).FindStringSubmatch(out)
		require.NotNil(t, match, out)
		percent, err := strconv.ParseFloat(match[1], 64)
		require.NoError(t, err)
		requests, err = strconv.ParseFloat(strings.ReplaceAll(match[2], ",", ""), 64)
		require.NoError(t, err)
		return requests, percent
	}
	get := func() {
		require.Equal(t, string(documents[7].line)+"\n", boxcar("get", "--zone", "eu-1a", "--timeout", "30s", "--collection", collectionName, documents[7].id))
	}
	boxcar("bench", "--zone", "eu-1a", "--duration", "2s", "--callers", "4", "--pool-size", "16", "--timeout", "30s")
	stayed, foreign := share("eu-1a")
	require.Zero(t, foreign)
	left, foreign := share("eu-1b")
	require.Positive(t, foreign)
	require.Greater(t, stayed, 10*left)
	near.Stop(t)
	get()
	near.restart(t)
	get()
}

// startEtcd starts a real etcd and returns its address.
func startEtcd(t *testing.T) string {
	t.Helper()
	client, peer := freeport.Address(t), freeport.Address(t)
	testprocess.Start(t, exec.Command("etcd", "--data-dir", t.TempDir(), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer))
	return client
}
