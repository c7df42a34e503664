package publish

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/errors"
)

// Limits of a record.
const (
	// MaxRetained bounds the manifests that are retained.
	MaxRetained = 1_000
	// MaxPins bounds the groups of servers that may have a pin or a canary each.
	MaxPins = 1_000

	recordFormat = 1
)

// Record is the state of a collection in a bucket: the newest manifest, the announced
// manifest, and the pins of groups of servers. A method that changes it returns a changed
// copy, or an error.
type Record struct {
	Format int    `json:"format"`
	Queue  string `json:"queue"` // the queue's id, in hexadecimal digits

	// Epoch is a fencing token: it is incremented when a publisher takes over. Owner is
	// the random name of that publisher. Only the current owner commits.
	Epoch uint64 `json:"epoch"`
	Owner string `json:"owner"`

	Head      Ref `json:"head"`      // the newest manifest
	Validated Ref `json:"validated"` // the newest manifest that a validator accepted
	Announced Ref `json:"announced"` // the manifest that servers without a pin serve

	// Oldest is the first manifest that was not collected. Those before it exist only if they
	// are announced, validated, pinned or retained.
	Oldest   uint64 `json:"oldest,omitempty"`
	Retained []Ref  `json:"retained,omitempty"` // sorted by number

	Pins []Pin   `json:"pins,omitempty"` // sorted by group
	Bad  []Range `json:"bad,omitempty"`  // manifests that are never served; sorted
}

// Ref names a manifest.
type Ref struct {
	Number uint64 `json:"number"` // 0: none
	Digest Digest `json:"digest"` // of the manifest's object
}

// Pin makes the servers of a group serve a manifest instead of the announced one.
type Pin struct {
	Group  string    `json:"group"` // empty: all servers of the collection
	To     Ref       `json:"to"`
	By     string    `json:"by"` // the user or program that set the pin; informational
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
}

// Range is a range of numbers, both inclusive.
type Range struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// clone returns a deep copy.
func (r Record) clone() Record {
	r.Pins, r.Bad, r.Retained = slices.Clone(r.Pins), slices.Clone(r.Bad), slices.Clone(r.Retained)
	return r
}

// IsBad reports whether a manifest was marked as bad.
func (r Record) IsBad(number uint64) bool {
	return slices.ContainsFunc(r.Bad, func(b Range) bool { return b.From <= number && number <= b.To })
}

// Target returns the manifest that the servers of a group serve: that of PinOf, or the
// announced manifest.
func (r Record) Target(group string) Ref {
	if p := r.PinOf(group); p != nil {
		return p.To
	}
	return r.Announced
}

// PinOf returns the pin that holds the servers of a group: that of the group, or that of all
// servers; nil if there is none.
func (r Record) PinOf(group string) *Pin {
	for _, g := range []string{group, ""} {
		if i, found := r.findPin(g); found {
			return &r.Pins[i]
		}
	}
	return nil
}

func (r Record) findPin(group string) (int, bool) {
	return slices.BinarySearchFunc(r.Pins, group, func(p Pin, g string) int { return strings.Compare(p.Group, g) })
}

// takeOver makes owner the publisher. The publishers before it cannot commit any more.
func (r Record) takeOver(queue, owner string) (Record, error) {
	if r.Queue != "" && r.Queue != queue {
		return Record{}, refused("the bucket holds queue %s, not %s: give the URL of another prefix", r.Queue, queue)
	}
	r = r.clone()
	r.Format, r.Queue, r.Owner = recordFormat, queue, owner
	r.Epoch++
	return r, nil
}

// commit makes a manifest the head. The manifest has the next number and names the head as
// its predecessor.
func (r Record) commit(owner string, m *Manifest, digest Digest) (Record, error) {
	switch {
	case r.Owner != owner:
		return Record{}, errors.Wrapf(ErrFenced, "epoch %d", r.Epoch)
	case m.Number != r.Head.Number+1 || m.Previous != r.Head:
		return Record{}, errors.AssertionFailedf("publish: manifest %d follows %d, and the head is %d", m.Number, m.Previous.Number, r.Head.Number)
	}
	r = r.clone()
	r.Head = Ref{m.Number, digest}
	return r, nil
}

// Validate records that a validator accepted a manifest.
func (r Record) Validate(ref Ref) (Record, error) {
	if err := r.known(ref.Number); err != nil {
		return Record{}, err
	}
	if r.IsBad(ref.Number) {
		return Record{}, refused("manifest %d is marked as bad", ref.Number)
	}
	r = r.clone()
	if ref.Number > r.Validated.Number {
		r.Validated = ref
	}
	return r, nil
}

// Refuse marks a manifest that failed validation as bad, so that it is never served. A
// manifest that is pinned, or not newer than the announced one, cannot be refused: roll
// back instead.
func (r Record) Refuse(ref Ref) (Record, error) {
	if err := r.known(ref.Number); err != nil {
		return Record{}, err
	}
	if ref.Number <= r.Announced.Number {
		return Record{}, refused("manifest %d is announced or older than %d, which is: use rollback", ref.Number, r.Announced.Number)
	}
	if i := slices.IndexFunc(r.Pins, func(p Pin) bool { return p.To.Number == ref.Number }); i >= 0 {
		return Record{}, refused("manifest %d is pinned for group %q: pin another one first", ref.Number, r.Pins[i].Group)
	}
	r = r.clone()
	r.markBad(Range{ref.Number, ref.Number})
	return r, nil
}

// Announce makes the servers without a pin serve a manifest. It must be validated, and not
// older than the announced one.
func (r Record) Announce(ref Ref) (Record, error) {
	if err := r.known(ref.Number); err != nil {
		return Record{}, err
	}
	switch {
	case r.IsBad(ref.Number):
		return Record{}, refused("manifest %d is marked as bad", ref.Number)
	case ref.Number < r.Announced.Number:
		return Record{}, refused("manifest %d is announced, and it is newer than %d: use pin or rollback to go back", r.Announced.Number, ref.Number)
	case ref.Number > r.Validated.Number:
		return Record{}, refused("manifest %d is not validated: run validate --to %d", ref.Number, ref.Number)
	}
	r = r.clone()
	r.Announced = ref
	return r, nil
}

// Pin sets the pin of a group; the empty group is all servers.
func (r Record) Pin(p Pin) (Record, error) {
	if err := r.known(p.To.Number); err != nil {
		return Record{}, err
	}
	if r.IsBad(p.To.Number) {
		return Record{}, refused("manifest %d is marked as bad", p.To.Number)
	}
	r = r.clone()
	i, found := r.findPin(p.Group)
	switch {
	case found:
		r.Pins[i] = p
	case len(r.Pins) == MaxPins:
		return Record{}, refused("there are %d pins already: unpin a group", MaxPins)
	default:
		r.Pins = slices.Insert(r.Pins, i, p)
	}
	return r, nil
}

// Unpin removes the pin of a group, which then serves the announced manifest. If that
// manifest is bad, as after a rollback, Unpin fails unless acceptBad is set.
func (r Record) Unpin(group string, acceptBad bool) (Record, error) {
	i, found := r.findPin(group)
	if !found {
		return Record{}, refused("group %q has no pin", group)
	}
	r = r.clone()
	r.Pins = slices.Delete(r.Pins, i, i+1)
	if next := r.Target(group); r.IsBad(next.Number) && !acceptBad {
		return Record{}, refused("without the pin, manifest %d would be served, which is marked as bad: announce a good one first, or accept it with --accept-bad", next.Number)
	}
	return r, nil
}

// Rollback pins all servers to a manifest and marks those after it, up to the head, as bad.
// Pins of groups to one of these end. Appends continue and are committed.
func (r Record) Rollback(p Pin) (Record, error) {
	p.Group = ""
	r, err := r.Pin(p)
	if err != nil {
		return Record{}, err
	}
	if r.Head.Number > p.To.Number {
		r.markBad(Range{p.To.Number + 1, r.Head.Number})
	}
	r.Pins = slices.DeleteFunc(r.Pins, func(other Pin) bool { return other.Group != "" && r.IsBad(other.To.Number) })
	return r, nil
}

// Retain keeps a manifest when others of its age are collected.
func (r Record) Retain(ref Ref) (Record, error) {
	if err := r.known(ref.Number); err != nil {
		return Record{}, err
	}
	i, found := slices.BinarySearchFunc(r.Retained, ref.Number, compareNumber)
	switch {
	case found:
		return r, nil
	case len(r.Retained) == MaxRetained:
		return Record{}, refused("%d manifests are retained already", MaxRetained)
	}
	r = r.clone()
	r.Retained = slices.Insert(r.Retained, i, ref)
	return r, nil
}

// Release ends Retain.
func (r Record) Release(number uint64) (Record, error) {
	i, found := slices.BinarySearchFunc(r.Retained, number, compareNumber)
	if !found {
		return Record{}, refused("manifest %d is not retained", number)
	}
	r = r.clone()
	r.Retained = slices.Delete(r.Retained, i, i+1)
	return r, nil
}

func compareNumber(ref Ref, number uint64) int { return cmp.Compare(ref.Number, number) }

// collect drops all but the newest manifests and those that are in use.
func (r Record) collect(keep uint64) (Record, error) {
	if keep == 0 {
		return Record{}, refused("at least one manifest is kept")
	}
	if r.Head.Number >= keep {
		r.Oldest = max(r.Oldest, r.Head.Number-keep+1)
	}
	return r, nil
}

// keptBefore returns the manifests with numbers below limit that are in use, newest first.
func (r Record) keptBefore(limit uint64) []Ref {
	refs := append([]Ref{r.Validated, r.Announced}, r.Retained...)
	for _, p := range r.Pins {
		refs = append(refs, p.To)
	}
	refs = slices.DeleteFunc(refs, func(ref Ref) bool { return ref.Number == 0 || ref.Number >= limit })
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Compare(b.Number, a.Number) })
	return slices.Compact(refs)
}

// known returns an error unless a manifest was committed and not collected.
func (r Record) known(number uint64) error {
	switch {
	case number == 0 || number > r.Head.Number:
		return refused("there is no manifest %d; the newest is %d", number, r.Head.Number)
	case number < r.Oldest && !slices.ContainsFunc(r.keptBefore(r.Oldest), func(ref Ref) bool { return ref.Number == number }):
		return refused("manifest %d was collected by gc; the oldest is %d", number, r.Oldest)
	}
	return nil
}

// markBad adds a range of bad manifests; r is a clone.
func (r *Record) markBad(bad Range) {
	var merged []Range
	for _, b := range r.Bad {
		if b.To+1 < bad.From || bad.To+1 < b.From {
			merged = append(merged, b)
			continue
		}
		bad = Range{min(b.From, bad.From), max(b.To, bad.To)}
	}
	merged = append(merged, bad)
	r.Bad = merged
	slices.SortFunc(r.Bad, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
}
