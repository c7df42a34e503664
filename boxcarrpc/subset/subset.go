package subset

import (
	"fmt"
	"strings"
)

// An Algorithm chooses the subset of one frontend.
type Algorithm interface {
	// Name returns the name that ByName accepts.
	Name() string
	// Subset appends to dst the k distinct backends that the given frontend uses,
	// most preferred first, and returns the extended slice. Backends are numbered
	// from 0 to backends-1, frontends from 0 to frontends-1.
	Subset(dst []int, frontend, frontends, backends, k int) []int
}

// Limits and defaults.
const (
	// MaxTasks is the maximum number of frontends and of backends. Higher numbers
	// count as MaxTasks.
	MaxTasks = 1<<31 - 1
	// DefaultLotSize is the lot size that the article recommends.
	DefaultLotSize = 10
	// MaxLotSize is the largest Options.LotSize.
	MaxLotSize = 256
)

// Options are an algorithm's parameters. All frontends of a set must use the
// same. Nil Options are the defaults.
type Options struct {
	// Seed determines the random choices. Roundrobin and ringsteady have none. The
	// default is 0.
	Seed uint64
	// LotSize is the number of tasks that rocksteadier shuffles together. A larger
	// lot gives more distinct subsets and less balance. The default is
	// DefaultLotSize.
	LotSize int
	// BackendScaling moves ringsteady's backends to even distances, for better
	// balance and a little more churn. Rocksteadier always scales its lots.
	BackendScaling bool
	// FrontendScaling also moves ringsteady's frontends to even distances. The
	// balance is ideal, but adding or removing a frontend changes the subsets of
	// others.
	FrontendScaling bool
}

// algorithms lists the constructors in the order of doc.go.
var algorithms = []struct {
	name string
	make func(o Options) Algorithm
}{
	{"random", func(o Options) Algorithm { return random{o.Seed} }},
	{"roundrobin", func(Options) Algorithm { return roundRobin{} }},
	{"deterministic", func(o Options) Algorithm { return newDeterministic(o.Seed) }},
	{"consistent", func(o Options) Algorithm { return consistent{o.Seed} }},
	{"rendezvous", func(o Options) Algorithm { return rendezvous{o.Seed} }},
	{"ringsteady", func(o Options) Algorithm { return ringsteady{o.BackendScaling, o.FrontendScaling} }},
	{"rocksteadier", func(o Options) Algorithm { return newRocksteadier(o.Seed, o.LotSize) }},
}

// Names returns the names that ByName accepts.
func Names() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.name
	}
	return names
}

// ByName returns the algorithm with a name. Options of other algorithms have no
// effect. The error names the invalid name or option.
func ByName(name string, opts *Options) (Algorithm, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.LotSize == 0 {
		o.LotSize = DefaultLotSize
	}
	if o.LotSize < 1 || o.LotSize > MaxLotSize {
		return nil, fmt.Errorf("subset: lot size %d: must be from 1 to %d", o.LotSize, MaxLotSize)
	}
	for _, a := range algorithms {
		if a.name == name {
			return a.make(o), nil
		}
	}
	return nil, fmt.Errorf("subset: unknown algorithm %q: must be one of %s", name, strings.Join(Names(), ", "))
}

// A request has the arguments of Subset, clamped to their ranges. If k is 0 the other
// fields are unset.
type request struct {
	frontend, frontends, backends uint64
	k                             int
}

func clamp(frontend, frontends, backends, k int) request {
	backends = min(backends, MaxTasks)
	k = min(k, backends)
	if k <= 0 {
		return request{}
	}
	frontend = min(max(frontend, 0), MaxTasks-1)
	frontends = min(max(frontends, frontend+1), MaxTasks)
	return request{frontend: uint64(frontend), frontends: uint64(frontends), backends: uint64(backends), k: k}
}
