package follow

import (
	"slices"
	"time"

	"docstore/docservice/readiness"
	"docstore/queue/publish"
)

// The decisions of a Follower as functions of what it knows. The other files execute them.

// startWait is the time for which a started server waits for the record before it is ready
// with the manifest that it has.
const startWait = 5 * time.Second

// move is a change of the served manifest.
type move int

const (
	stay    move = iota // at the target
	advance             // add the files of the target to the served state
	replace             // make another state, and serve it when it is ready
)

// nextMove returns how to get from the served manifest to the target. The served state may
// hold entries of another manifest, next, whose files were not all added; number 0: there is
// none. reset: it holds increments, and must not.
func nextMove(record publish.Record, served, next, target publish.Ref, reset bool) move {
	partial := isPartial(next, target)
	switch {
	case target == served && !partial && !reset:
		return stay
	case target == served, partial && !record.Continues(next.Number, target.Number):
		return replace
	case record.Continues(served.Number, target.Number):
		return advance
	}
	return replace
}

// isPartial reports whether the served state may hold entries of a manifest, next, that is not the
// target.
func isPartial(next, target publish.Ref) bool { return next.Number > 0 && next != target }

// nearestCheckpoint returns the latest checkpoint whose index can read on to the
// target; 0: there is none.
func nearestCheckpoint(record publish.Record, present []uint64, target uint64) (nearest uint64) {
	for _, number := range present {
		if number == target || number < target && !record.IsBad(number) && record.SameQueue(number, target) {
			nearest = max(nearest, number)
		}
	}
	return nearest
}

// obsoleteCheckpoints returns the checkpoints to remove: those of bad manifests, and of the
// others all but the latest ones and those of manifests in use.
func obsoleteCheckpoints(record publish.Record, present []uint64, keep int) []uint64 {
	var obsolete []uint64
	for _, n := range slices.Backward(slices.Sorted(slices.Values(present))) {
		switch {
		case record.IsBad(n) && !record.InUse(n):
			obsolete = append(obsolete, n)
		case keep > 0:
			keep--
		case !record.InUse(n):
			obsolete = append(obsolete, n)
		}
	}
	return obsolete
}

// goal is what a started server must serve to be ready: a manifest with its increments up to
// a number. It is kept in CURRENT until it is reached.
type goal struct {
	Manifest  uint64 `json:"manifest"` // 0: not known
	Increment uint64 `json:"increment,omitempty"`
}

// start decides when a Follower becomes ready for the first time.
type start struct {
	opened  time.Time
	goal    goal
	aim     aim  // that the goal was determined for
	kept    goal // by CURRENT; 0: none
	reached bool
}

// aim is what the record says about the manifest to be served.
type aim struct {
	target  publish.Ref
	extends bool // with increments
}

// startGoal returns the goal of a started server. Without contact for some time it is the last
// one that was not reached, or the state on the disk.
func startGoal(s start, status Status, now time.Time) goal {
	if s.goal.Manifest > 0 || !status.LastContact.IsZero() || now.Sub(s.opened) < startWait {
		return s.goal
	}
	return goalWithoutContact(s, status)
}

func goalWithoutContact(s start, status Status) goal {
	if s.kept.Manifest > 0 {
		return s.kept
	}
	return goal{Manifest: status.Served}
}

// isHere reports whether the files of the goal are here.
func (g goal) isHere(s Status) bool {
	return g.Manifest != 0 && s.Served == g.Manifest && s.Increment >= g.Increment
}

// sourceOf returns the facts that decide whether a server is ready. After it has reached its first
// goal only the age of its state makes it unready.
func sourceOf(s start, status Status, maxStaleness time.Duration, now time.Time) readiness.Source {
	facts := readiness.Source{
		Reached: s.reached, Contacted: !status.LastContact.IsZero(), Target: status.Target,
		Goal: s.goal.Manifest, GoalIncrement: s.goal.Increment, Served: status.Served, Increment: status.Increment, Error: status.Error,
	}
	if age := now.Sub(status.Current); s.reached && maxStaleness > 0 && age > maxStaleness {
		facts.Staleness = age
	}
	if status.FetchBytes > 0 {
		facts.Fetch = &readiness.Progress{
			Done: status.FetchedBytes, Total: status.FetchBytes, Unit: readiness.Bytes, FilesDone: status.FetchedFiles, Files: status.FetchFiles,
		}
	}
	return facts
}
