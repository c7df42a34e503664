package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"docstore/bench/fleet/policy"
)

// A config is one run of the simulator.
type config struct {
	frontends, backends int
	cells, columns      int    // groups of backends and frontends: see cells.go
	k                   int    // backends that a frontend may use
	size                int    // slots of a frontend; 0 for peak rate x p99 x 1.5, at least k
	policy, subset      string // by name
	load                string // "document", or a share of the fleet's capacity
	scenario            string
	duration, warmup    time.Duration
	seed                uint64

	hotShare, hotTimes float64 // so many frontends have so many times the mean rate
	coldShare          float64 // so many have none
	shape              shape   // of the service time
	sigma              float64 // of the lognormal service time, 0 for a constant one
	service            time.Duration
	asBoxcar           bool // backends report requests in flight but not latency
	options            policy.Options

	deadline, hedge time.Duration // of a request, and until it is also sent to another backend; 0 for none
	skew            time.Duration // maximum offset of the clocks of frontends
	zoned           bool          // slots prefer backends of the frontend's zone
	borrow          bool          // slots borrow the next subset if theirs is dead or full
	board           int           // slots of a backend, 0 for four times the mean
	failShare       float64       // of the backends, in failures, silent, silent-start and grey

	transfer, work time.Duration // of a response on the network, and of the frontend before the request
	sharedLink     bool          // the responses of a frontend arrive one after another
	tokens         float64       // rate of the token buckets relative to the capacity of a backend
	gossipRelays   int

	rate float64 // requests a second of all frontends, from load
}

const (
	trip = 500_000 // nanoseconds from a frontend to a backend or back

	documentRate    = 100_000.0 // requests a second to a million backends
	documentService = 88_979 * time.Microsecond
	loadService     = 50 * time.Millisecond
	loadSigma       = 0.5
	tokenRate       = 1.25 // of the token buckets of viamedia and knotty, relative to the capacity of a backend

	// The default retry budget of a pool.
	retryShare       = 0.2
	retriesPerSecond = 10
)

var scenarios = []string{"steady", "failures", "rolling", "slow", "mixed", "weighted", "silent", "silent-start", "zone", "hotzone", "grey", "cell", "neighbour"}

// resolve sets the dependent fields and returns all invalid ones as errors.
func (c *config) resolve() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.frontends < 1 || c.backends < 1 || c.frontends > 1<<20 || c.backends > 1<<24 {
		bad("%d frontends and %d backends: at least 1, at most %d and %d", c.frontends, c.backends, 1<<20, 1<<24)
	}
	if groups := c.groups(); groups < 1 || c.frontends%groups > 0 || c.backends%groups > 0 {
		bad("-cells %d, -columns %d: must divide %d frontends and %d backends", c.cells, c.columns, c.frontends, c.backends)
	} else {
		c.k = min(c.k, c.backends/groups)
	}
	if c.zoned && (c.groups() != 1 || c.frontends%zones > 0 || c.backends%zones > 0) {
		bad("-zones: needs -cells 1, -columns 1, and a multiple of %d frontends and backends", zones)
	}
	if c.duration <= 0 || c.warmup < 0 {
		bad("-duration %v, -warmup %v: must be positive", c.duration, c.warmup)
	}
	if c.hotShare < 0 || c.coldShare < 0 || c.hotShare+c.coldShare > 1 || c.hotShare*c.hotTimes > 1 {
		bad("-hot %v x %v, -cold %v: more than all", c.hotShare, c.hotTimes, c.coldShare)
	}
	if c.deadline < 0 || c.hedge < 0 || c.skew < 0 || c.options.SilenceTimeout < 0 {
		bad("-deadline %v, -hedge %v, -skew %v, -silence %v: must not be negative", c.deadline, c.hedge, c.skew, time.Duration(c.options.SilenceTimeout))
	}
	if c.gossipRelays < 0 || c.gossipRelays > maxRelays {
		bad("-relays %d: must be 0 to %d", c.gossipRelays, maxRelays)
	}
	if c.board < 0 || c.board > maxBoard {
		bad("-board %d: must be 0 to %d", c.board, maxBoard)
	}
	if c.failShare < 0 || c.failShare >= 1 {
		bad("-fail-share %v: must be at least 0 and below 1", c.failShare)
	}
	c.resolveLoad(bad)
	if c.size == 0 && len(errs) == 0 {
		peak := c.rate / float64(c.frontends) * max(c.hotTimes, 1)
		c.size = max(c.k, int(math.Ceil(peak*c.p99Service().Seconds()*1.5)))
	}
	c.options.Size, c.options.Servers = c.size, c.k
	if c.policy == "viamedia" {
		c.options.Size = 1 << 20 // its connections are for one request each
	}
	if _, err := c.makePolicy(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *config) resolveLoad(bad func(string, ...any)) {
	if c.load == "document" {
		c.rate = documentRate * float64(c.backends) / 1e6
		c.transfer, c.work = documentTransfer, documentWork
		if c.service == 0 {
			c.service, c.shape, c.sigma = documentService, shapes[0], 0
		}
		return
	}
	var share float64
	if _, err := fmt.Sscanf(c.load, "%g", &share); err != nil || share <= 0 || share > 2 {
		bad("-load %q: document, or a share of the capacity, above 0 and at most 2", c.load)
	}
	if c.service == 0 {
		c.service, c.sigma = loadService, loadSigma
	}
	c.rate = share * float64(c.backends) / c.service.Seconds()
}

const maxRelays = 4

func (c *config) makePolicy() (func() policy.Policy, error) {
	return policy.ByName(c.policy, &c.options)
}

// p99Service returns the 99th percentile of the service time.
func (c *config) p99Service() time.Duration {
	return time.Duration(float64(c.service) * c.shape.p99(c.sigma))
}

// perBackend returns F k / B, the mean number of frontends that may use a backend.
func (c *config) perBackend() float64 {
	return float64(c.frontends) * float64(c.k) / float64(c.backends)
}

// wholeFleet reports whether the policy uses all backends instead of a subset.
func (c *config) wholeFleet() bool { return c.policy == "viamedia" }

// bucketed reports whether backends have token buckets.
func (c *config) bucketed() bool { return c.policy == "viamedia" || c.policy == "knotty" }
