package follow

import (
	"slices"

	"docstore/queue/publish"
)

// The decisions of a Follower as functions of what it knows. The other files execute them.

// move is a change of the served manifest.
type move int

const (
	stay      move = iota // at the target
	goForward             // add the files of the target to the served state
	goBeside              // make another state, and serve it when it is ready
)

// nextMove returns how to get from the served manifest to the target. reset: the served
// state holds more than the manifest, and must not.
func nextMove(record publish.Record, served, target publish.Ref, reset bool) move {
	switch {
	case target == served && reset:
		return goBeside
	case target == served:
		return stay
	case record.Continues(served.Number, target.Number):
		return goForward
	}
	return goBeside
}

// nearestCheckpoint returns the latest checkpoint from which an index can read on to the
// target; 0: there is none.
func nearestCheckpoint(record publish.Record, present []uint64, target uint64) (nearest uint64) {
	for _, number := range present {
		if number == target || number < target && !record.IsBad(number) && record.SameQueue(number, target) {
			nearest = max(nearest, number)
		}
	}
	return nearest
}

// obsoleteCheckpoints returns the checkpoints to remove so that the latest ones remain.
func obsoleteCheckpoints(present []uint64, keep int) []uint64 {
	slices.Sort(present)
	return present[:max(0, len(present)-keep)]
}
