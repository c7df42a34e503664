//go:build linux

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// maxFaultTime is the maximum time for which the faults of a step last.
const maxFaultTime = 5 * time.Second

// rowFaults are the faults of one row of a column; the other rows answer. Each returns what
// ends the fault, after which the daemon becomes ready.
var rowFaults = []struct {
	name  string
	begin func(r *longRun, d *daemon) (end func())
}{
	{"kill -9", func(r *longRun, d *daemon) func() {
		r.f.kill(d)
		return func() { r.f.restart(d) }
	}},
	{"SIGTERM", func(r *longRun, d *daemon) func() {
		r.f.stop(d)
		return func() { r.f.restart(d) }
	}},
	{"SIGSTOP", func(r *longRun, d *daemon) func() {
		r.f.disturb(d)
		require.NoError(r.t, d.Process.Signal(syscall.SIGSTOP))
		return func() {
			require.NoError(r.t, d.Process.Signal(syscall.SIGCONT))
			r.f.undisturb(d)
		}
	}},
	{"drain", func(r *longRun, d *daemon) func() {
		// A client that is stopped keeps its slots: drain does not wait for them. A server
		// that has just restarted may answer late.
		d.WaitUntil(r.t, "the answer to drain", func() bool {
			drain := start(r.t, nil, "boxcar", "drain", "--timeout", "1s", "--servers", d.boxcar)
			<-drain.Exited
			return regexp.MustCompile(": drained|is still draining").MatchString(drain.Output.String())
		})
		return func() { start(r.t, nil, "boxcar", "undrain", "--servers", d.boxcar).WaitExit(r.t) }
	}},
}

// storeFaults are faults of the stores.
var storeFaults = []struct {
	name  string
	begin func(r *longRun) (end func())
}{
	{"etcd away", func(r *longRun) func() {
		r.f.etcd.Kill()
		return func() {
			r.f.etcd.Restart(r.t)
			r.f.setPID("etcd", r.f.etcd.PID())
		}
	}},
	{"bucket away", func(r *longRun) func() {
		r.f.s3.away.Store(true)
		return func() { r.f.s3.away.Store(false) }
	}},
}

// The probabilities of faults in a step are 1 to these numbers.
const (
	rowFaultOf    = 2 // for each column
	storeFaultOf  = 4 // for each store
	columnDrainOf = 6
	columnDeathOf = 12
	updateOf      = 12
)

// step makes random faults, ends them, and waits until all daemons serve the announced state.
func (r *longRun) step() {
	r.t.Helper()
	begun := time.Now()
	var names []string
	fault := func(format string, args ...any) {
		name := fmt.Sprintf(format, args...)
		kind, _, _ := strings.Cut(name, ":")
		r.tally(faultsOf, kind)
		names = append(names, name)
	}
	switch columns := []string{"a", "b", "c"}; {
	case r.random.IntN(updateOf) == 0:
		fault("rolling update")
		r.f.rollingUpdate()
	case r.random.IntN(columnDeathOf) == 0:
		column := columns[r.random.IntN(len(columns))]
		fault("all rows killed: %s", column)
		r.killColumn(column)
	default:
		drained := ""
		if r.random.IntN(columnDrainOf) == 0 {
			drained = columns[r.random.IntN(len(columns))]
			fault("column drained: %s", drained)
			r.f.placement("drain", drained)
		}
		r.overlappingFaults(fault)
		if drained != "" {
			r.f.waitPlaced()
			r.f.placement("undrain", drained)
			r.f.apply()
			r.f.waitPlaced()
		}
	}
	r.waitConnected()
	r.converge()
	r.c.require(strings.Join(names, ", "))
	r.mu.Lock()
	r.mu.state.Steps++
	step, announced := r.mu.state.Steps, r.mu.announced
	r.mu.Unlock()
	require.NoError(r.t, r.save())
	r.t.Logf("%s: step %d, state %d, took %s: %s", r.elapsed().Round(time.Second), step, announced, time.Since(begun).Round(time.Millisecond), strings.Join(names, ", "))
}

// overlappingFaults makes faults of at most one row of each column, and of the stores, and
// ends them.
func (r *longRun) overlappingFaults(fault func(format string, args ...any)) {
	r.t.Helper()
	var ends []func()
	for _, one := range storeFaults {
		if r.random.IntN(storeFaultOf) == 0 {
			fault("%s", one.name)
			ends = append(ends, one.begin(r))
		}
	}
	for _, column := range []string{"a", "b", "c"} {
		if r.random.IntN(rowFaultOf) == 0 {
			row, one := r.random.IntN(longRunRows), rowFaults[r.random.IntN(len(rowFaults))]
			fault("%s: %s-%d", one.name, column, row)
			ends = append(ends, one.begin(r, r.f.columns[column][row]))
		}
	}
	time.Sleep(r.faultTime())
	for _, end := range ends {
		end()
	}
}

// faultTime returns for how long faults last.
func (r *longRun) faultTime() time.Duration {
	return time.Duration(r.random.Int64N(int64(min(maxFaultTime, r.duration/10))))
}

// killColumn kills all rows of a column: calls for its shards fail meanwhile, and no other
// answer is wrong.
func (r *longRun) killColumn(column string) {
	r.t.Helper()
	r.f.disturbance.change()
	for _, d := range r.f.columns[column] {
		r.f.kill(d)
	}
	time.Sleep(r.faultTime())
	for _, d := range r.f.columns[column] {
		r.f.restart(d)
	}
	r.waitConnected() // the pool asks them again within a second
	r.f.disturbance.change()
}

// waitConnected waits until all servers are live and the client is connected to them.
func (r *longRun) waitConnected() {
	r.t.Helper()
	r.f.waitLive("a", "b", "c")
	r.f.eventually("the client is connected to all rows", func(context.Context) bool {
		for _, s := range r.c.client.PoolStats() {
			if s.Live < longRunRows {
				return false
			}
		}
		return true
	})
}
