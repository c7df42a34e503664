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
	goBack                // make another state, and serve it when it is ready
)

// nextMove returns how to get from the served manifest to the target.
func nextMove(served, target publish.Ref) move {
	switch {
	case target == served:
		return stay
	case target.Number > served.Number:
		return goForward
	}
	return goBack
}

// obsoleteCheckpoints returns the checkpoints to remove so that the latest ones remain.
func obsoleteCheckpoints(present []uint64, keep int) []uint64 {
	slices.Sort(present)
	return present[:max(0, len(present)-keep)]
}
