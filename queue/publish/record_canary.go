package publish

import (
	"slices"
	"strings"
	"time"
)

// Canary makes the servers of a group, without a pin, serve a manifest before it is
// announced.
type Canary struct {
	Group string    `json:"group"` // not empty
	To    Ref       `json:"to"`
	By    string    `json:"by"` // the user or program that started it; informational
	Time  time.Time `json:"time"`
}

func (r Record) findCanary(group string) (int, bool) {
	return slices.BinarySearchFunc(r.Canaries, group, func(c Canary, g string) int { return strings.Compare(c.Group, g) })
}

// StartCanary makes the servers of a group serve a manifest that could be announced. The
// announced manifest itself ends the canary of the group.
func (r Record) StartCanary(c Canary) (Record, error) {
	if c.Group == "" {
		return Record{}, refused("a canary needs a group of servers: give --canary GROUP, as in docserviced --group")
	}
	if err := r.announceable(c.To); err != nil {
		return Record{}, err
	}
	if p := r.PinOf(c.Group); p != nil {
		return Record{}, refused("group %q is pinned to manifest %d and would not serve %d: unpin it first", c.Group, p.To.Number, c.To.Number)
	}
	r = r.clone()
	i, found := r.findCanary(c.Group)
	switch {
	case c.To == r.Announced && !found:
		return Record{}, refused("manifest %d is announced, and group %q has no canary", c.To.Number, c.Group)
	case c.To == r.Announced:
		r.Canaries = slices.Delete(r.Canaries, i, i+1)
		return r, nil
	case found:
		r.Canaries[i] = c
	case len(r.Canaries) == MaxPins:
		return Record{}, refused("there are %d canaries already: announce a manifest", MaxPins)
	default:
		r.Canaries = slices.Insert(r.Canaries, i, c)
	}
	r.serve(c.To)
	return r, nil
}

// endBadCanaries ends the canaries of bad manifests; r is a clone.
func (r *Record) endBadCanaries() {
	r.Canaries = slices.DeleteFunc(r.Canaries, func(c Canary) bool { return r.IsBad(c.To.Number) })
}
