package subset

import (
	"fmt"
	"strings"
)

// An Algorithm chooses the subset of one frontend.
type Algorithm interface {
	// Name is the name by which ByName knows it.
	Name() string
	// Subset appends to dst the k backends, of those numbered from 0 to
	// backends-1, that the frontend of this number is to use among so many
	// frontends: distinct, and most preferred first.
	Subset(dst []int, frontend, frontends, backends, k int) []int
}

const (
	// MaxTasks is how many frontends or backends there may be; higher numbers
	// count as this one.
	MaxTasks = 1<<31 - 1
	// DefaultLotSize is what the article recommends.
	DefaultLotSize = 10
	// MaxLotSize is the largest Options.LotSize.
	MaxLotSize = 256
)

// Options are an algorithm's parameters. All frontends of a set must use the
// same. Nil Options are the defaults.
type Options struct {
	// Seed makes the random choices of all but roundrobin and ringsteady, which
	// have none. The default is 0, as good as any.
	Seed uint64
	// LotSize is how many tasks rocksteadier shuffles together: more give more
	// different subsets and less balance. The default is DefaultLotSize.
	LotSize int
	// BackendScaling moves ringsteady's backends to even distances: better
	// balance for a little churn. Rocksteadier always does that with its lots.
	BackendScaling bool
	// FrontendScaling moves ringsteady's frontends, too: ideal balance, but every
	// frontend that comes or goes changes the others' subsets.
	FrontendScaling bool
}

// algorithms makes each algorithm, in the order of doc.go.
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

// Names are the algorithms that ByName knows.
func Names() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.name
	}
	return names
}

// ByName returns the algorithm with a name; options that it has no use for
// change nothing. Its error says which name or option is wrong.
func ByName(name string, opts *Options) (Algorithm, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.LotSize == 0 {
		o.LotSize = DefaultLotSize
	}
	if o.LotSize < 1 || o.LotSize > MaxLotSize {
		return nil, fmt.Errorf("subset: a lot size of %d: it must be from 1 to %d", o.LotSize, MaxLotSize)
	}
	for _, a := range algorithms {
		if a.name == name {
			return a.make(o), nil
		}
	}
	return nil, fmt.Errorf("subset: there is no algorithm %q, but %s", name, strings.Join(Names(), ", "))
}

// request is what Subset is asked for, with numbers in their range. If k is 0
// the others mean nothing.
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
