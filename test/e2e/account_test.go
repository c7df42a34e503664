//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice"
)

// Outcomes of calls in an account. That of a failed call ends with its reason.
const (
	outcomeFound  = "found"
	outcomeAbsent = "not found, rightly"
	outcomeFailed = "failed: "
)

// account counts the calls by kind and outcome.
type account struct {
	mu struct {
		sync.Mutex
		calls     map[string]int64 // by "KIND OUTCOME"
		violation error            // the first one
		times     []time.Duration  // of the gets since the last sample
	}
}

func newAccount() *account {
	a := &account{}
	a.mu.calls = map[string]int64{}
	return a
}

func (a *account) count(kind, outcome string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.calls[kind+" "+outcome]++
}

// violated records an answer that must not occur.
func (a *account) violated(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.violation == nil {
		a.mu.violation = err
	}
}

func (a *account) violation() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.violation
}

// took records the duration of a get.
func (a *account) took(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.times = append(a.mu.times, d)
}

// takeTimes returns the durations since it was called last, in ascending order.
func (a *account) takeTimes() []time.Duration {
	a.mu.Lock()
	times := a.mu.times
	a.mu.times = nil
	a.mu.Unlock()
	slices.Sort(times)
	return times
}

// calls returns a copy of the counts.
func (a *account) calls() map[string]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.mu.calls)
}

// add adds the counts of an earlier part of a run.
func (a *account) add(calls map[string]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range calls {
		a.mu.calls[name] += n
	}
}

func (a *account) String() string { return listCounts(a.calls()) }

// listCounts returns counts in the order of their names.
func listCounts(counts map[string]int64) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(lines, ", ")
}

// reasonOf returns the reason of a failed call, one of few.
func reasonOf(err error) string {
	var status httpStatusError
	var network net.Error
	switch {
	case errors.As(err, &status):
		return status.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, docservice.ErrUnavailable):
		return "unavailable"
	case errors.As(err, &network):
		return "connection"
	}
	return boxcarrpc.CodeOf(err).String()
}
