package readiness

import (
	"fmt"
	"time"
)

// Index is what a server knows about a queue in a directory and its index.
type Index struct {
	// State is Ready if the index is complete, and else says what it lacks: Indexing if the queue
	// has not been read to its end. Cause is empty if it is complete.
	State State
	Cause string
	// Fault is the fault that stops the index; empty: none does.
	Fault string
	// Read of the Bytes of the queue's files here are in the index, or in the one that is rebuilt; all,
	// if nothing more can be read.
	Read, Bytes int64
}

// Report returns the state.
func (x Index) Report() Report {
	r := Report{State: x.State, Cause: x.Cause}
	switch {
	case r.State == Indexing && x.Bytes == 0:
		return Report{State: NoFiles, Cause: "no file of the queue has arrived here: is docstore-sync running?"}
	case r.State == Indexing && x.Read == x.Bytes:
		r.State = WaitingForFiles
	case (r.State == Indexing || r.State == Rebuilding) && x.Bytes > 0:
		r.Progress = &Progress{Done: x.Read, Total: x.Bytes, Unit: Bytes}
	}
	if x.Fault != "" && !r.IsReady() {
		r.Cause += "; " + x.Fault
	}
	return r
}

// Source is what a server knows about its files of a collection in an object store.
type Source struct {
	// Reached: the goal of the start was reached. Then only Staleness makes the server unready:
	// the age of the state if it is above the limit, else 0.
	Reached   bool
	Staleness time.Duration

	Contacted bool   // the state of the collection was read
	Target    uint64 // manifest to be served; 0: none is announced
	// Goal is the manifest to be served, with its increments up to a number; 0: the newest
	// increment of the target is not known.
	Goal, GoalIncrement uint64
	Served, Increment   uint64 // that are here
	// Fetch is the progress of the files; nil: none are fetched. Next is the index that is made for
	// other files than the served ones; nil: none is.
	Fetch *Progress
	Next  *Index
	// Error is why the last attempt to follow the store has failed; empty: it has not.
	Error string
}

// Report returns the state. It is Indexing if only the index is to include the files.
func (s Source) Report() Report {
	r := s.report()
	if s.Error != "" && !r.IsReady() && r.State != Indexing {
		r.Cause += ": " + s.Error
	}
	return r
}

func (s Source) report() Report {
	switch {
	case s.Staleness > 0:
		return Report{State: Stale, Cause: fmt.Sprintf("the target was last known to be served %v ago, more than --max-staleness", s.Staleness.Round(time.Second))}
	case s.Reached:
		return Report{State: Ready}
	case s.Goal == 0 && !s.Contacted:
		return Report{State: WaitingForStore, Cause: "the state of the collection was not read yet"}
	case s.Goal == 0 && s.Target == 0:
		return Report{State: WaitingForManifest, Cause: "no manifest is announced"}
	case s.Goal == 0:
		return Report{State: WaitingForStore, Cause: fmt.Sprintf("the newest increment of manifest %d is not known", s.Target)}
	case s.Served != s.Goal && s.Next != nil:
		r, cause := s.Next.Report(), fmt.Sprintf("the index at manifest %d is made", s.Goal)
		switch r.State {
		case Ready: // its increments are added
			return Report{State: Indexing, Cause: cause}
		case Indexing:
			r.Cause = cause
		default:
			r.Cause = cause + "; " + r.Cause
		}
		return r
	case s.Served != s.Goal:
		return Report{State: Fetching, Cause: fmt.Sprintf("manifest %d has not been fetched", s.Goal), Progress: s.Fetch}
	case s.Increment < s.GoalIncrement:
		return Report{
			State: CatchingUp, Cause: fmt.Sprintf("%d of %d increments of manifest %d have been added", s.Increment, s.GoalIncrement, s.Goal),
			Progress: &Progress{Done: int64(s.Increment), Total: int64(s.GoalIncrement), Unit: Increments},
		}
	}
	return Report{State: Indexing, Cause: fmt.Sprintf("manifest %d has not been indexed to its end", s.Served)}
}

// Copy returns the state of a copy in an object store from those of its files and its index. A
// faulty index explains why files do not arrive.
func Copy(files, index Report) Report {
	switch {
	case files.IsReady(), index.State == Faulted, index.State == Rebuilding:
		return index
	case files.State == Indexing && index.State == Indexing:
		files.Progress = index.Progress
	}
	return files
}

// Part is a part of a collection that is not ready.
type Part struct {
	Name string
	Report
}

// Combine returns the state of a collection of several parts from those that are not ready: the state
// that is furthest from ready, with the progress of all parts in it.
func Combine(parts int, notReady []Part) Report {
	if len(notReady) == 0 {
		return Report{State: Ready}
	}
	worst := notReady[0]
	for _, p := range notReady {
		if p.State.Worse(worst.State) {
			worst = p
		}
	}
	r := Report{State: worst.State, Cause: worst.Name + ": " + worst.Cause}
	if parts > 1 {
		r.Cause = fmt.Sprintf("%d of %d shards are not ready; %s", len(notReady), parts, r.Cause)
	}
	for _, p := range notReady {
		if p.State == r.State {
			r.Progress = r.Progress.plus(p.Progress)
		}
	}
	return r
}
