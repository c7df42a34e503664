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
	// MaxPins bounds the groups of servers that may have a pin, and those with a canary.
	MaxPins = 1_000
	// MaxGenerations bounds how often a queue may replace another one.
	MaxGenerations = 1_000

	recordFormat = 1
)

// Record is the state of a collection in a bucket: the newest manifest, the announced
// manifest, and the pins and canaries of groups of servers. A method that changes it returns
// a changed copy, or an error.
type Record struct {
	Format int    `json:"format"`
	Queue  string `json:"queue"` // the queue's id, in hexadecimal digits, or a name of the layout
	// Incarnation is the random name of the record in an Arbiter. Empty: commits are made in
	// the bucket. Log sets it.
	Incarnation string `json:"incarnation,omitempty"`

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

	Pins     []Pin    `json:"pins,omitempty"`     // sorted by group
	Canaries []Canary `json:"canaries,omitempty"` // sorted by group
	Bad      []Range  `json:"bad,omitempty"`      // manifests that are never served; sorted

	// Served is the highest number that was announced, pinned, or served by a canary.
	Served uint64 `json:"served,omitempty"`
	// Frozen: after a rollback nothing is announced until a manifest of at least the number
	// Clean, which has no entries of the bad manifests. Clean is 0 until there is one.
	Frozen bool   `json:"frozen,omitempty"`
	Clean  uint64 `json:"clean,omitempty"`

	// Base is the manifest whose files the next one continues, if that is not the head: after
	// a discard.
	Base *Ref `json:"base,omitempty"`
	// Generations are the first manifests of each queue that replaced another one.
	Generations []uint64 `json:"generations,omitempty"`

	// Increments: a publisher announces increments, so servers look for them.
	Increments bool `json:"increments,omitempty"`
	// Held is the reason why a stream does not announce; empty: it does. Announce clears it.
	Held string `json:"held,omitempty"`
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
	r.Pins, r.Canaries, r.Bad, r.Retained = slices.Clone(r.Pins), slices.Clone(r.Canaries), slices.Clone(r.Bad), slices.Clone(r.Retained)
	r.Generations = slices.Clone(r.Generations)
	return r
}

// IsBad reports whether a manifest was marked as bad.
func (r Record) IsBad(number uint64) bool {
	return slices.ContainsFunc(r.Bad, func(b Range) bool { return b.From <= number && number <= b.To })
}

// Target returns the manifest that the servers of a group serve: that of PinOf, else that of
// the group's canary, else the announced manifest.
func (r Record) Target(group string) Ref {
	if p := r.PinOf(group); p != nil {
		return p.To
	}
	if i, found := r.findCanary(group); found {
		return r.Canaries[i].To
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
// replace allows another queue than the one that the bucket holds.
func (r Record) takeOver(queue, owner string, replace, stream bool) (Record, error) {
	switch {
	case r.Queue == "":
		r.Queue = queue
	case r.Queue != queue && !replace:
		return Record{}, refused("the bucket holds queue %s, not %s: give the URL of another prefix, or --new-generation to replace the whole collection", r.Queue, queue)
	case len(r.Generations) == MaxGenerations && r.Queue != queue:
		return Record{}, refused("the collection was replaced %d times already: give the URL of another prefix", MaxGenerations)
	}
	r = r.clone()
	r.Format, r.Owner = recordFormat, owner
	r.Increments = r.Increments || stream
	r.Epoch++
	return r, nil
}

// base returns the manifest that the next one of a queue continues; number 0: none.
func (r Record) base(queue string) Ref {
	switch {
	case r.Queue != queue:
		return Ref{}
	case r.Base != nil:
		return *r.Base
	}
	return r.Head
}

// commit makes a manifest of a queue the head. The manifest has the next number and names
// the head as its predecessor. A partial manifest lacks sealed files of the queue; if the
// queue replaces another one, that manifest is bad.
func (r Record) commit(owner, queue string, m *Manifest, digest Digest, partial bool) (Record, error) {
	switch {
	case r.Owner != owner:
		return Record{}, errors.Wrapf(ErrFenced, "epoch %d", r.Epoch)
	case m.Number != r.Head.Number+1 || m.Previous != r.Head || m.Continues() != r.base(queue):
		return Record{}, errors.AssertionFailedf("publish: manifest %d follows %d and continues %d, and the head is %d", m.Number, m.Previous.Number, m.Continues().Number, r.Head.Number)
	}
	r = r.clone()
	if r.Queue != queue {
		r.Queue, r.Generations = queue, append(r.Generations, m.Number)
	}
	r.Head, r.Base = Ref{m.Number, digest}, nil
	if partial && len(r.Generations) > 0 && r.Generation(r.Served) != r.Generation(m.Number) {
		r.markBad(Range{m.Number, m.Number})
	}
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
	r.endBadCanaries()
	return r, nil
}

// Announce makes the servers without a pin serve a manifest. It must be validated, and not
// older than the announced one. Canaries of this or an earlier manifest end. After a
// rollback it must be Clean or later; then the pin of all servers ends.
func (r Record) Announce(ref Ref) (Record, error) {
	if err := r.announceable(ref); err != nil {
		return Record{}, err
	}
	r = r.clone()
	r.serve(ref)
	r.Announced, r.Held = ref, ""
	r.Canaries = slices.DeleteFunc(r.Canaries, func(c Canary) bool { return c.To.Number <= ref.Number })
	if r.Frozen {
		r.Frozen, r.Clean = false, 0
		r.Pins = slices.DeleteFunc(r.Pins, func(p Pin) bool { return p.Group == "" })
	}
	return r, nil
}

// announceable returns an error unless a manifest can be announced.
func (r Record) announceable(ref Ref) error {
	if err := r.known(ref.Number); err != nil {
		return err
	}
	switch {
	case r.Frozen && r.Clean == 0:
		return refused("nothing is announced after a rollback: run revert, then validate and announce its manifest")
	case r.IsBad(ref.Number):
		return refused("manifest %d is marked as bad", ref.Number)
	case ref.Number < r.Announced.Number:
		return refused("manifest %d is announced, and it is newer than %d: use pin or rollback to go back", r.Announced.Number, ref.Number)
	case ref.Number > r.Validated.Number:
		return refused("manifest %d is not validated: run validate --to %d", ref.Number, ref.Number)
	case r.Frozen && ref.Number < r.Clean:
		return refused("after the rollback, the first manifest without entries of the bad ones is %d: announce that one or a later one", r.Clean)
	}
	return nil
}

// serve records that servers may have served a manifest; r is a clone.
func (r *Record) serve(ref Ref) { r.Served = max(r.Served, r.Announced.Number, ref.Number) }

// Pin sets the pin of a group; the empty group is all servers.
func (r Record) Pin(p Pin) (Record, error) {
	if err := r.known(p.To.Number); err != nil {
		return Record{}, err
	}
	if r.IsBad(p.To.Number) {
		return Record{}, refused("manifest %d is marked as bad", p.To.Number)
	}
	r = r.clone()
	r.serve(p.To)
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

// Unpin removes the pin of a group, which then serves the announced manifest. It fails, unless
// acceptBad is set, if that manifest is bad or if the pin is that of a rollback: announcing
// the manifest of a revert or a discard ends it.
func (r Record) Unpin(group string, acceptBad bool) (Record, error) {
	i, found := r.findPin(group)
	if !found {
		return Record{}, refused("group %q has no pin", group)
	}
	r = r.clone()
	r.Pins = slices.Delete(r.Pins, i, i+1)
	next := r.Target(group)
	switch {
	case acceptBad:
	case group == "" && r.Frozen:
		return Record{}, refused("the pin is that of a rollback: run revert, then validate and announce its manifest, which ends the pin; or accept the entries of the bad manifests with --accept-bad")
	case r.IsBad(next.Number):
		return Record{}, refused("without the pin, manifest %d would be served, which is marked as bad: announce a good one first, or accept it with --accept-bad", next.Number)
	}
	if group == "" {
		r.Frozen, r.Clean = false, 0
	}
	return r, nil
}

// Rollback pins all servers to a manifest, marks those after it, up to the head, as bad, and
// freezes announcing. Pins and canaries of groups at one of these end. Appends continue and
// are committed.
func (r Record) Rollback(p Pin) (Record, error) {
	p.Group = ""
	r, err := r.Pin(p)
	if err != nil {
		return Record{}, err
	}
	if r.Head.Number > p.To.Number {
		r.markBad(Range{p.To.Number + 1, r.Head.Number})
	}
	r.Frozen, r.Clean = true, 0
	r.endBadPins()
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
	for _, c := range r.Canaries {
		refs = append(refs, c.To)
	}
	if r.Base != nil {
		refs = append(refs, *r.Base)
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
