//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/placement/etcdmap"
	"docstore/internal/etcdtest"
	"docstore/internal/testprocess"
)

const columnShards = 16

// columnFleet is a collection of several shards in a bucket and etcd, and the daemons of its columns.
type columnFleet struct {
	t           testing.TB
	dir         string // of the queue, the bucket, etcd and the daemons
	rows        int    // of each column
	s3          *s3Server
	etcd        *etcdtest.Server
	flags       []string // of commands that use the bucket
	documents   []document
	store       *etcdmap.Store
	columns     map[string][]*daemon     // in the order of their start
	started     int                      // daemons, which names their directories
	disturbance disturbance              // of all rows of a column
	zones       int                      // of the rows of each column, which take them in turn
	etcdOf      func(zone string) string // address of etcd for servers of a zone

	mu struct {
		sync.Mutex
		pages     []*daemon // whose HTTP the canary uses
		processes map[string]int
	}
}

const columnURL = "s3://docs/debian"

// newColumnFleet publishes documents in shards, and starts three columns of some rows. If
// continued, the directory is that of an earlier fleet, which has published them.
func newColumnFleet(t testing.TB, dir string, rows int, documents []document, continued bool) *columnFleet {
	t.Helper()
	return startColumnFleet(t, dir, rows, []string{"a", "b", "c"}, documents, continued)
}

// startColumnFleet is newColumnFleet with other columns.
func startColumnFleet(t testing.TB, dir string, rows int, columns []string, documents []document, continued bool) *columnFleet {
	t.Helper()
	f := prepareColumnFleet(t, dir, rows, documents, continued)
	f.startColumns(columns)
	return f
}

// prepareColumnFleet publishes documents for startColumns, unless continued.
func prepareColumnFleet(t testing.TB, dir string, rows int, documents []document, continued bool) *columnFleet {
	t.Helper()
	f := &columnFleet{
		t: t, dir: dir, rows: rows, zones: rows, documents: documents, columns: map[string][]*daemon{},
		s3: startS3In(t, filepath.Join(dir, "s3")), etcd: etcdtest.StartIn(t, filepath.Join(dir, "etcd")),
	}
	f.flags = append(slices.Clone(f.s3.flags), "--etcd", f.etcd.Address)
	f.etcdOf = func(string) string { return f.etcd.Address }
	f.mu.processes = map[string]int{"etcd": f.etcd.PID(), "bucket": f.s3.pid}
	if !continued {
		queue := filepath.Join(dir, "queue")
		start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", "append", "--queue", queue, "--shards", fmt.Sprint(columnShards), "--quiet").WaitExit(t)
		start(t, nil, "docstore-updater", "seal", "--queue", queue).WaitExit(t)
		for _, command := range [][]string{{"publish", "--queue", queue, "--quiet"}, {"validate", "--quiet"}, {"announce"}} {
			start(t, nil, "docstore-updater", append(append(command, "--bucket", columnURL), f.flags...)...).WaitExit(t)
		}
	}
	f.openStore()
	return f
}

// startColumns starts the rows of columns and waits until they serve all shards.
func (f *columnFleet) startColumns(columns []string) {
	f.t.Helper()
	for _, column := range columns {
		for range f.rows {
			f.grow(column)
		}
	}
	f.waitLive(columns...)
	control, err := f.store.Control(f.t.Context())
	require.NoError(f.t, err)
	for _, column := range control.Drained { // when the earlier fleet was interrupted
		f.placement("undrain", column)
	}
	f.apply()
	f.waitPlaced()
	f.waitServed(f.rows * columnShards)
	for _, d := range f.daemons() {
		f.listed(d, true)
	}
}

// waitServed waits until the servers together serve so many shards.
func (f *columnFleet) waitServed(shards int) {
	f.t.Helper()
	f.eventually("the first shards are served", func(ctx context.Context) bool {
		states, err := f.store.States(ctx)
		ready := 0
		for _, s := range states {
			for _, held := range s.Shards {
				if held.Ready {
					ready++
				}
			}
		}
		return err == nil && ready == shards
	})
}

// pids returns the process ids of the servers.
func (f *columnFleet) pids() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.mu.processes)
}

func (f *columnFleet) setPID(name string, pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.processes[name] = pid
}

// openStore opens the placement.
func (f *columnFleet) openStore() {
	f.t.Helper()
	var err error
	f.store, err = etcdmap.Open(f.etcd.Address, collectionName, nil)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, f.store.Close()) })
}

// daemons returns the daemons of all columns.
func (f *columnFleet) daemons() []*daemon {
	return slices.Concat(f.columns["a"], f.columns["b"], f.columns["c"], f.columns["d"])
}

// grow starts another row of a column.
func (f *columnFleet) grow(column string) *daemon {
	row := len(f.columns[column])
	name := fmt.Sprint(column, "-", row)
	data := filepath.Join(f.dir, fmt.Sprint("data-", f.started))
	f.started++
	zone := fmt.Sprint("z", row%f.zones)
	d := startDaemonWith(f.t, columnURL, data, append(slices.Clone(f.s3.flags), "--etcd", f.etcdOf(zone), "--column", column, "--zone", zone,
		"--keep-moved", "2s", "--memory", "16MiB", "--grace", "5s")...)
	d.name = name
	f.t.Cleanup(func() { f.keepLog(d) })
	f.setPID(name, d.Process.Pid)
	f.columns[column] = append(f.columns[column], d)
	return d
}

// placement runs a command of docserviced placement.
func (f *columnFleet) placement(args ...string) {
	f.t.Helper()
	start(f.t, nil, "docserviced", append(append([]string{"placement"}, args...), "--etcd", f.etcd.Address, "--collection", collectionName)...).WaitExit(f.t)
}

func (f *columnFleet) apply() { f.t.Helper(); f.placement("apply") }

// listed makes the canary use the HTTP listener of a daemon, or not any more.
func (f *columnFleet) listed(d *daemon, now bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.pages = slices.DeleteFunc(f.mu.pages, func(one *daemon) bool { return one == d })
	if now {
		f.mu.pages = append(f.mu.pages, d)
	}
}

func (f *columnFleet) eventually(what string, condition func(context.Context) bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), testprocess.WaitLimit)
	defer cancel()
	for !condition(ctx) {
		require.NoError(f.t, ctx.Err(), what)
		time.Sleep(testprocess.PollInterval)
	}
}

// waitLive waits until all servers of columns are live and follow the placement.
func (f *columnFleet) waitLive(columns ...string) {
	f.t.Helper()
	f.eventually("the servers are live", func(ctx context.Context) bool {
		states, err := f.store.States(ctx)
		live := map[string]bool{} // addresses
		for _, s := range states {
			live[s.Address] = s.Epoch > 0
		}
		m, _ := f.store.Map()
		return err == nil && m != nil && !slices.ContainsFunc(columns, func(name string) bool {
			return slices.ContainsFunc(f.columns[name], func(d *daemon) bool { return !live[d.boxcar] })
		})
	})
}

// waitPlaced waits until the applied plan is reached.
func (f *columnFleet) waitPlaced() {
	f.t.Helper()
	f.eventually("the plan is reached", func(ctx context.Context) bool {
		control, err := f.store.Control(ctx)
		m, _ := f.store.Map()
		if err != nil || m == nil || len(control.Wanted) == 0 {
			return false
		}
		for i, p := range m.Shards {
			if p.Column != control.Wanted[i] || p.Next != "" {
				return false
			}
		}
		return true
	})
}

// waitMoving waits until some shard moves, or the plan is reached already.
func (f *columnFleet) waitMoving() {
	f.t.Helper()
	f.eventually("shards move", func(ctx context.Context) bool {
		control, err := f.store.Control(ctx)
		m, _ := f.store.Map()
		placed := err == nil && m != nil
		for i, p := range m.Shards {
			if p.Next != "" {
				return true
			}
			placed = placed && i < len(control.Wanted) && p.Column == control.Wanted[i]
		}
		return placed
	})
}

// disturb begins a time in which HTTP calls to a daemon may fail, and undisturb ends it when
// the daemon is ready.
func (f *columnFleet) disturb(d *daemon) {
	f.listed(d, false)
	d.disturbance.change()
}

func (f *columnFleet) undisturb(d *daemon) {
	f.t.Helper()
	d.waitReady(f.t)
	d.disturbance.change()
	f.listed(d, true)
}

// kill kills a daemon, stop ends it with SIGTERM, and restart starts it again and waits until
// it is ready.
func (f *columnFleet) kill(d *daemon) {
	f.disturb(d)
	d.Kill()
}

func (f *columnFleet) stop(d *daemon) {
	f.t.Helper()
	f.disturb(d)
	d.Stop(f.t)
}

func (f *columnFleet) restart(d *daemon) {
	f.t.Helper()
	f.keepLog(d)
	d.Output.Reset()
	d.restart(f.t)
	f.setPID(d.name, d.Process.Pid)
	f.undisturb(d)
}

// keepLog appends the output of the process of a daemon to a file of the directory.
func (f *columnFleet) keepLog(d *daemon) {
	f.t.Helper()
	file, err := os.OpenFile(filepath.Join(f.dir, d.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(f.t, err)
	_, err = file.WriteString(d.Output.String())
	require.NoError(f.t, err)
	require.NoError(f.t, file.Close())
}

// placer returns the elected daemon, or any.
func (f *columnFleet) placer() *daemon {
	address, err := f.store.Leader(f.t.Context())
	require.NoError(f.t, err)
	for _, d := range f.daemons() {
		if d.boxcar == address {
			return d
		}
	}
	return f.columns["a"][0]
}
