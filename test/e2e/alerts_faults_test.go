//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// scaleVariable has the number of times as fast that the rules' time runs. make soak sets it.
	scaleVariable = "DOCSTORE_SOAK_SCALE"
	// faultVariable has a regular expression: only faults whose names match are made.
	faultVariable = "DOCSTORE_SOAK_FAULT"
	// alertGrace is the time beyond the rule's within which an alert must fire or end: the
	// detection by the product, whose times are not scaled, two scrapes, and a loaded machine.
	alertGrace = 2 * time.Minute
	// quietTime is how long the healthy cluster must raise no alert, at scale 1: the longest
	// "for" of the rules.
	quietTime = 15 * time.Minute
)

// clusterFault is a fault of a cluster and the alerts that it must raise.
type clusterFault struct {
	name  string
	begin func(c *alertCluster) (end func())
	// fires must fire within their times; then their playbooks are followed, whose output must
	// contain shows. may are alerts that the same fault explains.
	fires []string
	may   []string
	shows []string
}

var clusterFaults = []clusterFault{
	{
		name: "updater killed",
		begin: func(c *alertCluster) func() {
			c.append.Kill()
			return func() {}
		},
		fires: []string{"DocstoreUpdaterDown"},
		may:   []string{"DocstoreCanaryLate"},
		shows: []string{"inactive"},
	},
	{
		name: "restored source",
		begin: func(c *alertCluster) func() {
			c.restoreSource()
			return func() {}
		},
		fires: []string{"DocstoreUpdaterDown"},
		may:   []string{"DocstoreCanaryLate"},
		shows: []string{"older copy", "restored into"},
	},
	{
		name: "slow object store",
		begin: func(c *alertCluster) func() {
			c.f.s3.wait.Store(int64(min(storeDelay/time.Duration(c.scale), maxStoreDelay)))
			return func() { c.f.s3.wait.Store(0) }
		},
		fires: []string{"DocstoreNotFresh"},
		may:   []string{"DocstoreManifestSilent", "DocstoreManifestLag", "DocstoreCanaryLate"},
		shows: []string{"real"},
	},
	{
		name: "partition of etcd",
		begin: func(c *alertCluster) func() {
			c.etcd.silent.Store(true)
			return func() { c.etcd.silent.Store(false) }
		},
		fires: []string{"DocstoreEtcdSilent"},
		may:   []string{"DocstorePlacementStale"},
		shows: []string{"etcd does not answer"},
	},
	{
		name: "dead replica set",
		begin: func(c *alertCluster) func() {
			c.f.disturbance.change()
			for _, d := range c.f.columns["b"] {
				c.f.kill(d)
			}
			return c.f.disturbance.change
		},
		fires: []string{"DocstoreFewServers", "DocstoreDown", "BoxcarErrorBudgetFast"},
		may:   []string{"BoxcarLadderShort"},
		shows: []string{"inactive"},
	},
	{
		name: "silent servers",
		begin: func(c *alertCluster) func() {
			for _, d := range slices.Concat(c.f.columns["a"][1:], c.f.columns["b"][2:]) { // 7 of 10
				c.f.disturb(d)
				require.NoError(c.t, d.Process.Signal(syscall.SIGSTOP))
			}
			return func() {}
		},
		fires: []string{"DocstoreFewServers", "DocstoreDown"},
		may:   []string{"BoxcarLadderShort"},
	},
	{
		name: "zone lost",
		begin: func(c *alertCluster) func() {
			for _, d := range c.f.daemons() {
				if slices.Contains(d.args, "z1") {
					c.f.kill(d)
				}
			}
			return func() {}
		},
		fires: []string{"DocstoreFewServers", "DocstoreDown"},
		shows: []string{"inactive"},
	},
	{
		name: "full disk",
		begin: func(c *alertCluster) func() {
			ballast := filepath.Join(c.disk, "ballast")
			file, err := os.Create(ballast)
			require.NoError(c.t, err)
			for size := int64(1 << 30); size >= 4<<10; {
				at, err := file.Seek(0, 2)
				require.NoError(c.t, err)
				if err := syscall.Fallocate(int(file.Fd()), 0, at, size); err != nil { //nolint:gosec // a descriptor
					require.ErrorIs(c.t, err, syscall.ENOSPC)
					size /= 2
				}
			}
			require.NoError(c.t, file.Close())
			return func() { require.NoError(c.t, os.Remove(ballast)) }
		},
		fires: []string{"DocstoreDiskFull", "DocstoreManifestError"},
		may:   []string{"DocstoreManifestLag", "DocstoreNotFresh", "DocstoreCanaryLate", "DocstoreIndexProblem"},
		shows: []string{"ballast", "100%"},
	},
	{
		name: "no free inodes",
		begin: func(c *alertCluster) func() {
			ballast := filepath.Join(c.disk, "ballast")
			require.NoError(c.t, os.Mkdir(ballast, 0o700))
			for i := 0; ; i++ {
				err := os.WriteFile(filepath.Join(ballast, fmt.Sprint(i)), nil, 0o600)
				if errors.Is(err, syscall.ENOSPC) {
					return func() { require.NoError(c.t, os.RemoveAll(ballast)) }
				}
				require.NoError(c.t, err)
			}
		},
		fires: []string{"DocstoreDiskFull"},
		// When its memory is full, after minutes, the index cannot begin another log: its lag grows, and an
		// id without an entry may have one that was not read.
		may: []string{
			"DocstoreManifestError", "DocstoreManifestLag", "DocstoreNotFresh", "DocstoreCanaryLate", "DocstoreIndexProblem", "DocstoreLag",
			"DocstoreUnavailable",
		},
		shows: []string{"ballast", "100%"},
	},
}

const (
	// storeDelay is the delay of each request to the slow store at scale 1: the bound of
	// DocstoreNotFresh.
	storeDelay = time.Minute
	// maxStoreDelay is below the time after which a request without progress has failed
	// (bucket.Options.StallTimeout): that would be another fault.
	maxStoreDelay = 14 * time.Second
)

// restoreSource replaces the queue by an older copy while append is stopped.
func (c *alertCluster) restoreSource() {
	c.t.Helper()
	old := c.queue() + ".copy"
	run := func(command string, args ...string) {
		output, err := exec.Command(command, args...).CombinedOutput()
		require.NoError(c.t, err, "%s", output)
	}
	c.append.Stop(c.t)
	run("cp", "-a", c.queue(), old)
	c.startAppend()
	state, _ := c.model.last()
	c.f.eventually("more documents are announced", func(context.Context) bool {
		now, _ := c.model.last()
		return now >= state+5
	})
	c.converge()
	c.append.Stop(c.t)
	run("rm", "-rf", c.queue())
	run("mv", old, c.queue())
	c.startAppend()
}

// TestClusterAlerts makes faults of a cluster, one after the other. Each must raise its alerts of
// deploy/prometheus, which Prometheus evaluates over the scraped series, within their times, and no
// other; their playbooks are followed, which must end them. All answers are accounted for.
func TestClusterAlerts(t *testing.T) {
	only := regexp.MustCompile(os.Getenv(faultVariable))
	text := os.Getenv(scaleVariable)
	if text == "" {
		t.Skip("takes hours: make soak PART=alerts runs it")
	}
	scale := atoi(t, text)
	require.Positive(t, scale, scaleVariable)
	quiet := quietTime / time.Duration(scale)
	c := newAlertCluster(t, t.TempDir(), scale)
	begun := time.Now()
	c.converge()
	time.Sleep(quiet)
	c.c.require("the healthy cluster")
	t.Logf("the cluster was healthy for %s", quiet)
	for _, fault := range clusterFaults {
		if only.MatchString(fault.name) {
			c.raise(fault)
		}
	}
	c.pause(true)
	c.catchUp()
	c.c.stop()
	requireLatest(c.f, c.model)
	state, _ := c.model.last()
	t.Logf("%s at scale %d, %d faults, %d states", time.Since(begun).Round(time.Second), scale, len(clusterFaults), state)
}

// raise makes a fault, waits for its alerts, follows their playbooks, and waits until no alert
// fires.
func (c *alertCluster) raise(fault clusterFault) {
	c.t.Helper()
	if strings.Contains(fault.name, "disk") || strings.Contains(fault.name, "inodes") {
		if c.disk == "" {
			c.t.Errorf("%s: not tried: a disk can be mounted by root only", fault.name) // the run continues
			return
		}
	}
	c.t.Logf("%s", fault.name)
	c.phase(slices.Concat(fault.fires, fault.may, lastingAlerts))
	end := fault.begin(c)
	for _, alert := range fault.fires {
		limit := c.rules.find(c.t, alert).within(c.t)/time.Duration(c.scale) + alertGrace
		c.wait(limit, alert+" fires", func(fired map[string][]string) bool { return len(fired[alert]) > 0 })
	}
	followed := map[string]bool{}
	output := c.follow(fault, followed)
	for _, text := range fault.shows {
		assert.Contains(c.t, output, text, fault.name)
	}
	end()
	c.quiet(fault, followed)
	c.converge()
	c.c.require(fault.name)
}

// follow follows the playbooks of the alerts of a fault that fire and were not followed, and returns
// the output.
func (c *alertCluster) follow(fault clusterFault, followed map[string]bool) string {
	c.t.Helper()
	var output strings.Builder
	firing, err := c.prometheus.firing(c.t.Context())
	require.NoError(c.t, err)
	for _, alert := range fault.fires {
		for _, one := range firing {
			key := alert
			if alert == "DocstoreDown" { // restarts one server; the others concern all, or need it once
				key += one.instance
			}
			if one.name == alert && !followed[key] {
				followed[key] = true
				output.WriteString(c.operator.follow(alert, c.variables(one.instance)))
			}
		}
	}
	return output.String()
}

// quiet waits until no alert fires, except lastingAlerts. It follows the playbooks of those that
// fire meanwhile.
func (c *alertCluster) quiet(fault clusterFault, followed map[string]bool) {
	c.t.Helper()
	var longest time.Duration
	for _, alert := range slices.Concat(fault.fires, fault.may) {
		longest = max(longest, c.rules.find(c.t, alert).window(c.t)/time.Duration(c.scale))
	}
	ended := time.Now()
	c.wait(longest+alertGrace, "the end of all alerts", func(map[string][]string) bool {
		c.follow(fault, followed)
		firing, err := c.prometheus.firing(c.t.Context())
		require.NoError(c.t, err)
		return !slices.ContainsFunc(firing, func(r raised) bool { return !slices.Contains(lastingAlerts, r.name) })
	})
	c.t.Logf("  no alert fires %s after the end of the fault", time.Since(ended).Round(time.Second/10))
}

// wait waits for a condition of the instances of the alerts that have fired in this phase.
func (c *alertCluster) wait(limit time.Duration, what string, done func(fired map[string][]string) bool) {
	c.t.Helper()
	for begun := time.Now(); ; time.Sleep(scrapeInterval / time.Duration(2*c.scale)) {
		fired := map[string][]string{}
		c.mu.Lock()
		for one := range c.mu.fired {
			fired[one.name] = append(fired[one.name], one.instance)
		}
		c.mu.Unlock()
		if done(fired) {
			return
		}
		if time.Since(begun) > limit {
			c.t.Errorf("waited %s for %s; fired: %v", limit, what, slices.Sorted(maps.Keys(fired))) // the run continues
			return
		}
	}
}

// variables are those of the playbooks.
func (c *alertCluster) variables(instance string) map[string]string {
	all := make([]string, 0, len(c.f.daemons()))
	data, etcd := "", c.f.etcd.Address
	for i, d := range c.f.daemons() {
		all = append(all, d.http)
		if d.http == instance {
			data = filepath.Join(c.dir, fmt.Sprint("data-", i))
			if slices.Contains(d.args, "z1") {
				etcd = c.etcd.address
			}
		}
	}
	return map[string]string{
		"HTTP": instance, "ALL": strings.Join(all, ","), "ETCD": etcd, "COLLECTION": collectionName, "DATA": data,
		"BUCKET": strings.Join(append([]string{columnURL}, c.f.s3.flags...), " "), "QUEUE": c.queue(), "NAME": "jobs",
	}
}
