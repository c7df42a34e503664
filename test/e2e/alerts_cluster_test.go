//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/ctxtime"
	"docstore/internal/freeport"
	"docstore/internal/testprocess"
	"docstore/internal/testseed"
)

const (
	// alertRows is the number of rows of each of two columns, so that seven servers of ten can
	// be silent while one of each column answers.
	alertRows  = 5
	alertZones = 2
	// alertPause is the pause after a call of the canary.
	alertPause = 20 * time.Millisecond
	// alertStatePause is the maximum pause between two states of the collection.
	alertStatePause = 2 * time.Second
	// journalLines is the number of lines that the playbooks ask for.
	journalLines = 20
	// ingestUnit is the unit of append in the playbooks.
	ingestUnit = "docstore-ingest@jobs"
)

// lastingAlerts may fire at any time: the error budget counts the calls that failed in the last
// hours, and DocstoreSlow the latency of a machine that other work may load.
var lastingAlerts = []string{"BoxcarErrorBudgetFast", "BoxcarErrorBudgetSlow", "DocstoreSlow"}

// alertCluster is a cluster that Prometheus watches.
type alertCluster struct {
	t          testing.TB
	dir        string
	scale      int
	f          *columnFleet
	model      *model
	account    *account
	c          *canary
	jobs       *os.File // which append follows
	append     *testprocess.Command
	metrics    string       // address of append's
	etcd       *silentProxy // of the servers of zone z1
	disk       string       // data of the server a-0 on a small disk; empty: it cannot be mounted
	prometheus *prometheus
	rules      ruleFile // not scaled
	operator   *operator

	mu struct {
		sync.Mutex
		paused  bool // no states are made
		allowed []string
		fired   map[raised]time.Time // since the phase began
		begun   time.Time            // of the phase
	}
}

// newAlertCluster starts a cluster whose documents change, and Prometheus.
func newAlertCluster(t testing.TB, dir string, scale int) *alertCluster {
	t.Helper()
	mountDisk(t, dir, clusterDiskBytes, clusterDiskNodes)
	c := &alertCluster{t: t, dir: dir, scale: scale, model: newModel(testseed.Seed(t)), account: newAccount(), metrics: freeport.Address(t)}
	c.rules = readRules(t)
	c.f = prepareColumnFleet(t, dir, alertRows, c.model.first(), false)
	c.f.zones = alertZones
	c.etcd = newSilentProxy(t, c.f.etcd.Address)
	c.f.etcdOf = func(zone string) string {
		if zone == "z1" {
			return c.etcd.address
		}
		return c.f.etcd.Address
	}
	if data := filepath.Join(dir, "data-0"); mountDisk(t, data, alertDiskBytes, alertDiskNodes) {
		c.disk = data
	}
	var err error
	c.jobs, err = os.Create(filepath.Join(dir, "jobs.ndjson"))
	require.NoError(t, err)
	c.startAppend()
	c.f.startColumns([]string{"a", "b"})
	c.c = c.f.openCanary(c.account, c.model, &etcdclient.Options{Pool: boxcarrpc.PoolOptions{Zone: "z1"}})
	c.c.pause = alertPause
	c.c.run(c.c.gets)
	c.c.run(c.c.batches)
	c.c.run(c.c.pages)
	frontEnd := httptest.NewServer(http.HandlerFunc(c.serveFrontEnd))
	t.Cleanup(frontEnd.Close)
	var daemons []string
	for _, d := range c.f.daemons() {
		daemons = append(daemons, d.http)
	}
	c.prometheus = startPrometheus(t, c.rules.scaled(t, scale), map[string][]string{
		"docstore": daemons, "docstore-updater": {c.metrics}, "web": {frontEnd.Listener.Addr().String()},
	}, scale)
	c.operator = newOperator(t, c.systemd)
	c.phase(lastingAlerts)
	c.change()
	var background sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); background.Wait() })
	background.Go(func() { c.changeDocuments(ctx) })
	background.Go(func() { c.watchAlerts(ctx) })
	return c
}

// startAppend starts append, which follows the file of documents.
func (c *alertCluster) startAppend() {
	c.t.Helper()
	c.append = start(c.t, nil, "docstore-updater", append([]string{
		"append", "--queue", c.queue(), "--resume", "--follow", "--publish", columnURL, "--announce", "--metrics", c.metrics,
		"--canary", max(time.Minute/time.Duration(c.scale), time.Second).String(), c.jobs.Name(),
	}, c.f.flags...)...)
}

func (c *alertCluster) queue() string { return filepath.Join(c.dir, "queue") }

// changeDocuments makes states of the collection until ctx ends.
func (c *alertCluster) changeDocuments(ctx context.Context) {
	for running := true; running; running = ctxtime.Sleep(ctx, rand.N(alertStatePause)) {
		c.change()
	}
}

// change makes a state of the collection, unless the changes are paused.
func (c *alertCluster) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.paused {
		return
	}
	state, changed := c.model.next()
	c.model.announcing(state)
	if _, err := c.jobs.Write(ndjson(changed)); err != nil {
		c.account.violated(err)
	}
}

// pause stops or continues the changes.
func (c *alertCluster) pause(now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.paused = now
}

// phase begins a time in which only some alerts may fire.
func (c *alertCluster) phase(allowed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.allowed, c.mu.fired, c.mu.begun = allowed, map[raised]time.Time{}, time.Now()
}

// watchAlerts records each alert that fires until ctx ends.
func (c *alertCluster) watchAlerts(ctx context.Context) {
	for ctxtime.Sleep(ctx, scrapeInterval/time.Duration(2*c.scale)) {
		firing, err := c.prometheus.firing(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.account.violated(err)
			}
			return
		}
		c.mu.Lock()
		for _, one := range firing {
			if _, known := c.mu.fired[one]; known {
				continue
			}
			c.mu.fired[one] = time.Now()
			c.t.Logf("  %s after %s", one, time.Since(c.mu.begun).Round(time.Second/10))
			if !slices.Contains(c.mu.allowed, one.name) {
				c.t.Errorf("no fault explains %s", one) // the run continues
			}
		}
		c.mu.Unlock()
	}
}

// converge pauses the changes until all servers serve the last state.
func (c *alertCluster) converge() {
	c.t.Helper()
	c.pause(true)
	c.catchUp()
	c.pause(false)
}

// catchUp waits until all servers serve the last state, which all answers must then show.
func (c *alertCluster) catchUp() {
	c.t.Helper()
	state, changed := c.model.last()
	last := changed[len(changed)-1]
	versions := c.model.latest()
	c.f.eventually("the last document is served", func(ctx context.Context) bool {
		document, err := c.c.client.Get(ctx, nil, last.id)
		if versions[last.id] == nil {
			return errors.Is(err, docservice.ErrNotFound)
		}
		return err == nil && string(document) == string(versions[last.id])
	})
	newest := [2]uint64{} // manifest and increment
	for range 2 {         // first the newest of all servers, then each of them
		for _, d := range c.f.daemons() {
			want := newest
			d.poll(c.t, "/api/v1/status", func(_ int, body []byte) bool {
				var s struct {
					Collections []struct {
						Ready    bool
						Manifest struct{ Served, Increment uint64 }
					}
				}
				require.NoError(c.t, json.Unmarshal(body, &s))
				for _, one := range s.Collections {
					served := [2]uint64{one.Manifest.Served, one.Manifest.Increment}
					if !one.Ready || slices.Compare(served[:], want[:]) < 0 {
						return false
					}
					if slices.Compare(served[:], newest[:]) > 0 {
						newest = served
					}
				}
				return true
			})
		}
	}
	c.model.served(state)
}

// systemd answers a call of systemctl or journalctl.
func (c *alertCluster) systemd(q request) string {
	c.t.Helper()
	line := q.program + " " + strings.Join(q.args, " ")
	var process *testprocess.Command
	var server *daemon
	if strings.Contains(line, ingestUnit) {
		process = c.append
	} else {
		i := slices.IndexFunc(c.f.daemons(), func(d *daemon) bool { return d.http == q.host })
		require.GreaterOrEqual(c.t, i, 0, "%s on %s", line, q.host)
		server = c.f.daemons()[i]
		process = server.Command
	}
	if q.program == "journalctl" {
		lines := strings.Split(strings.TrimSpace(process.Output.String()), "\n")
		return strings.Join(lines[max(0, len(lines)-journalLines):], "\n")
	}
	switch action := q.args[0]; action {
	case "status":
		select {
		case <-process.Exited:
			return "inactive"
		default:
			return "active"
		}
	case "stop":
		_ = process.Process.Signal(syscall.SIGTERM)
		<-process.Exited
	case "start", "restart":
		process.Kill()
		if server != nil {
			c.f.restart(server)
		} else {
			c.startAppend()
		}
	default:
		require.FailNow(c.t, "unknown action", line)
	}
	return ""
}

// serveFrontEnd serves the metrics of the canary's pools, with the names of boxcarprom.
func (c *alertCluster) serveFrontEnd(w http.ResponseWriter, _ *http.Request) {
	for i, s := range c.c.client.PoolStats() {
		for name, value := range map[string]uint64{
			"calls_total": s.Calls, "failed_total": s.Failed, "rejected_total": s.Rejected, "other_zone_total": s.OtherZone,
			"slots": uint64(s.Slots), "slots_wanted": uint64(s.Size), "servers_ejected": uint64(s.Ejected), //nolint:gosec // not negative
		} {
			fmt.Fprintf(w, "boxcar_client_%s{pool=\"%d\"} %d\n", name, i, value)
		}
	}
}

// silentProxy passes connections on. While it is silent, bytes do not arrive and no connection is
// closed, as if packets were dropped.
type silentProxy struct {
	address string
	silent  atomic.Bool
}

func newSilentProxy(t testing.TB, to string) *silentProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &silentProxy{address: listener.Addr().String()}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.pass(client, to)
		}
	}()
	return p
}

func (p *silentProxy) pass(client net.Conn, to string) {
	p.wait()
	server, err := net.Dial("tcp", to)
	if err != nil {
		_ = client.Close()
		return
	}
	one := func(to, from net.Conn) {
		defer to.Close()
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			p.wait()
			if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	go one(server, client)
	one(client, server)
}

// wait waits until the proxy is not silent.
func (p *silentProxy) wait() {
	for p.silent.Load() {
		time.Sleep(testprocess.PollInterval)
	}
}

// Disks are sparse files with file systems, above the bounds of DocstoreDiskFull. The cluster has one
// without other programs, whose writes could fill it.
const (
	clusterDiskBytes, clusterDiskNodes = 64 << 30, 500_000
	alertDiskBytes, alertDiskNodes     = 12 << 30, 8_000
)

// mountDisk mounts a disk in a directory. It returns false without root.
func mountDisk(t testing.TB, dir string, bytes, nodes int64) bool {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk.img")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, bytes))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-m", "0", "-N", fmt.Sprint(nodes), image}, {"mount", "-o", "loop", image, dir}} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil { //nolint:gosec // constant commands
			t.Logf("no disk: %s: %v: %s", strings.Join(command, " "), err, output)
			return false
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() }) //nolint:gosec // a directory of the test
	return true
}
