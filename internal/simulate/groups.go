package simulate

import (
	"slices"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/disk"
	"docstore/queue/bucket"
)

// group is a set of kinds of faults. Each group has a separate source of random numbers, so that a
// new group leaves the schedules of the others as they are.
type group struct {
	name        string
	probability float64     // of a configuration that has its faults
	kinds       []faultKind // that only this group has
	others      []string    // names of those that it also draws
	alone       bool        // there are no faults of other kinds but those of independent groups
	// shape changes the configuration so that the faults have an effect; nil: it is not changed.
	shape func(*Config, *chance.Draw)
}

// drawGroup adds the faults of at most one of groups: a log that is set back and a queue that is restored
// may together lack a record for good. It adds those of any number of independent ones.
func drawGroup(c *Config, faults []Fault) []Fault {
	for _, g := range groups {
		if d := chance.New(c.Seed).Next(g.name); g.kinds[0].possible(*c) && d.Bool(g.probability) {
			if g.shape != nil {
				g.shape(c, &d)
				faults = slices.DeleteFunc(faults, func(f Fault) bool { return g.alone || !kindOf(f.Kind).possible(*c) })
			}
			faults = append(faults, drawSchedule(&d, *c, g.possible(*c), maxOfGroup)...)
			break
		}
	}
	for _, g := range independent {
		if d := chance.New(c.Seed).Next(g.name); g.kinds[0].possible(*c) && d.Bool(g.probability) {
			faults = append(faults, drawSchedule(&d, *c, g.possible(*c), maxOfGroup)...)
		}
	}
	return faults
}

// maxOfGroup is the most faults of a group.
const maxOfGroup = 10

var groups = []group{
	{name: "log set back", probability: 0.15, others: []string{"updater kill", "updater restart", "log rotation"}, kinds: []faultKind{
		{name: "log truncated", single: true, longest: 30 * time.Second, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
			return w.setBack(0, d.Bool(0.3), d.Bool(0.5), d)
		}},
		{name: "log restored", single: true, longest: 30 * time.Second, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
			return w.setBack([]float64{0.1, 0.5, 0.9}[d.Int(3)], d.Bool(0.5), d.Bool(0.5), d)
		}},
	}},
	{name: "two publishers", probability: 0.15, others: []string{"updater kill", "updater restart", "log rotation", "store slow", "store executes puts late"}, kinds: []faultKind{
		{name: "updater taken over", store: true, longest: 40 * time.Second, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
			return w.takeOver(d.Bool(0.3))
		}},
	}},
	pins,
	lifeCycle,
	{name: "etcd restored", probability: 0.15, others: []string{"updater restart", "updater kill", "server restart"}, kinds: []faultKind{
		{name: "etcd restored", etcd: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
			if slices.ContainsFunc(w.config.Faults, func(f Fault) bool { return f.Kind == "column drained" || f.Kind == "etcd away" }) {
				return nil // a placement that is restored may lack the drain
			}
			return w.restoreEtcd()
		}},
	}},
	lags,
	rebuilds,
	truncations,
	forks,
	increments,
}

// increments are servers that cannot write or read increments for a while. Recovery may not depend on the
// next manifest.
var increments = group{
	name: "increments", probability: 0.4, alone: true, others: []string{"server disk full"}, shape: shapeIncrements, kinds: []faultKind{
		{name: "server writes of increments fail", server: true, store: true, longest: 20 * time.Second, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
			return h.doubtful(h.disk.FailWrites(disk.Failure{Pattern: "*.open", Probability: []float64{0.2, 1}[d.Int(2)]}))
		}},
		{name: "store denies increments", server: true, store: true, longest: 2 * time.Minute, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
			return h.denyIncrements()
		}},
	},
}

// shapeIncrements lets increments follow each other for the longest time without a manifest.
func shapeIncrements(c *Config, _ *chance.Draw) {
	c.Increments, c.SegmentAge, c.SegmentBytes = true, settleTime+c.Work, 1<<20
}

// fetchedFiles are patterns of the files that a server writes while it fetches a manifest.
var fetchedFiles = []string{"*.seg*", "CURRENT*"}

// independent are groups that any others may be combined with.
var independent = []group{
	indexes,
	caches,
	{name: "uploads", probability: 0.3, kinds: []faultKind{
		{name: "updater uploads slowly", store: true, longest: 2 * time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
			return w.ingest().slowUploads(d.Duration(500*time.Millisecond, 5*time.Second))
		}},
		{name: "server replaced in an upload", server: true, store: true, longest: 2 * time.Minute, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
			return h.replaceInUpload(d.Duration(500*time.Millisecond, 5*time.Second))
		}},
	}},
	{name: "returns", probability: 0.3, kinds: []faultKind{returnInterrupted}},
	{name: "wrong answers", probability: 0.4, others: []string{"server replaced", "server restart"}, kinds: []faultKind{
		{name: "store sends wrong bytes", store: true, longest: 2 * time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
			return w.storeFault(w.store.Lie([]float64{0.1, 0.3, 0.5}[d.Int(3)])) // some files of a manifest may be missing
		}},
		{name: "store refuses requests", store: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
			return w.storeFault(w.store.Refuse([]error{bucket.ErrDenied, bucket.ErrNoBucket, bucket.ErrClockSkew}[d.Int(3)]))
		}},
	}},
	{name: "crashes at files", probability: 0.4, others: []string{"server return interrupted", "server return interrupted"}, kinds: []faultKind{
		{name: "server crash at a file", server: true, store: true, files: fetchedFiles, begin: func(_ *world, h *serverHost, f Fault, d *chance.Draw) func() {
			h.crashAtFile(f.Files, int64(1+d.Int(8)), d.Bool(0.7))
			return nil
		}},
		{name: "server crash in its return", server: true, store: true, longest: 20 * time.Second, files: fetchedFiles, begin: func(_ *world, h *serverHost, f Fault, d *chance.Draw) func() {
			turnOn := h.turnOff(d.Bool(0.5))
			return func() {
				turnOn()
				for h.current() == nil && ctxtime.Sleep(h.w.alive, 10*time.Millisecond) {
				}
				h.crashAtFile(f.Files, int64(1+d.Int(30)), d.Bool(0.7))
			}
		}},
	}},
}

// possible returns the kinds that the fleet of a configuration can have, about as many that only the
// group has as others.
func (g group) possible(c Config) []faultKind {
	kinds := slices.Repeat(g.kinds, max(1, len(g.others)/len(g.kinds)))
	for _, name := range g.others {
		kinds = append(kinds, kindOf(name))
	}
	return slices.DeleteFunc(kinds, func(k faultKind) bool { return !k.possible(c) })
}

// kindOf returns the kind of a name.
func kindOf(name string) faultKind {
	kinds := slices.Concat(faultKinds, destructiveKinds)
	for _, g := range slices.Concat(groups, independent) {
		kinds = append(kinds, g.kinds...)
	}
	return kinds[slices.IndexFunc(kinds, func(k faultKind) bool { return k.name == name })]
}
