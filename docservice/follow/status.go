package follow

import (
	"cmp"
	"time"

	"docstore/docservice/readiness"
	"docstore/queue/publish"
)

// Status is the state of a Follower.
type Status struct {
	Announced uint64       // number of the announced manifest; 0: none is known
	Target    uint64       // of the manifest to be served
	Served    uint64       // of the manifest whose files the served collection has, and maybe some of a later one; 0: none
	Pin       *publish.Pin // that determines the target; nil: none
	// Increment is the number of the last increment of the served manifest that was added to
	// it; 0: none. IncrementTime is the time at which it was published; zero: not known.
	Increment     uint64
	IncrementTime time.Time
	// Held is the reason why a stream has stopped to announce; empty: it has not.
	Held string
	// Frozen: after a rollback nothing is announced until the queue has been reverted.
	Frozen bool
	// Behind is the time since which it is known that the target, the manifest with all of its
	// increments, is not served; zero: it is served.
	Behind time.Time
	// Lag is the time since Behind; 0: the target is served.
	Lag time.Duration
	// FetchedFiles of FetchFiles and FetchedBytes of FetchBytes have been fetched for the move in
	// progress, at FetchRate bytes per second.
	FetchedFiles, FetchFiles int
	FetchedBytes, FetchBytes int64
	FetchRate                float64
	// PeerBytes and BucketBytes were fetched from other servers and from the bucket since
	// Open, in complete files.
	PeerBytes, BucketBytes int64
	// Error is why the last attempt to follow failed, or why the bucket does not answer now;
	// empty: neither.
	Error string
	// LastContact is the time at which the record was last read; zero: it was not. Current is
	// the time at which the target was last read and served; at first, the time of Open.
	LastContact, Current time.Time
	// Files is the state of the files here, as described in the package comment. The collection is
	// ready if its index has them, too.
	Files readiness.Report
}

// Contact returns LastContact, or the time of Open if the record was not read since.
func (s Status) Contact() time.Time {
	if s.LastContact.IsZero() {
		return s.Current
	}
	return s.LastContact
}

// Status returns the current state.
func (f *Follower) Status() Status {
	f.settle()
	now := f.now()
	f.mu.Lock()
	s, first, next := f.mu.status, f.mu.start, f.mu.next
	if elapsed := now.Sub(f.mu.began).Seconds(); s.FetchBytes > 0 && elapsed > 0 {
		s.FetchRate = float64(s.FetchedBytes) / elapsed
	}
	f.mu.Unlock()
	if !s.Behind.IsZero() {
		s.Lag = now.Sub(s.Behind)
	}
	if s.Error == "" && f.options.Problem != nil {
		if err := f.options.Problem(); err != nil {
			s.Error = err.Error()
		}
	}
	first.goal = startGoal(first, s, now)
	facts := sourceOf(first, s, f.options.MaxStaleness, now)
	if next != nil {
		made := next.Status().Index
		facts.Next = &made
	}
	s.Files = facts.Report()
	return s
}

// settle determines whether the goal of the start has been reached. While its files are not
// here, the collection that Open has opened is behind: it finds no id missing.
func (f *Follower) settle() {
	f.settling.Lock()
	defer f.settling.Unlock()
	f.mu.Lock()
	s, status, serving := f.mu.start, f.mu.status, f.mu.serving
	f.mu.Unlock()
	if s.reached || serving == nil {
		return
	}
	behind := !startGoal(s, status, f.now()).isHere(status)
	if f.settling.behind != behind {
		f.settling.behind = behind
		serving.SetBehind(behind)
	}
	if !behind && serving.Ready() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.start.reached = f.mu.start.reached || f.mu.start.goal == s.goal && f.mu.start.aim == s.aim
	}
}

// FilesDir returns the directory of the files that are complete and verified, and may be
// copied to other servers.
func (f *Follower) FilesDir() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.queue
}

// targetRead records what the record said when it was read. beyond: entries of another manifest may
// be served. complete: no increments follow those that are here.
func (f *Follower) targetRead(record publish.Record, target publish.Ref, now time.Time, beyond, complete bool) {
	f.update(func(s *Status) {
		s.Held, s.Frozen = record.Held, record.Frozen
		s.Announced, s.Target, s.Pin, s.LastContact = record.Announced.Number, target.Number, record.PinOf(f.options.Group), now
		switch {
		case target.Number != s.Served, beyond:
			s.becomeBehind(now)
		case complete:
			s.becomeCurrent(now)
		}
	})
}

// arrived records that a manifest is served, with its increments up to a number. complete: no
// others follow.
func (f *Follower) arrived(target publish.Ref, increment uint64, complete bool) {
	f.update(func(s *Status) {
		s.Served, s.Increment, s.IncrementTime = target.Number, increment, time.Time{}
		if complete {
			s.becomeCurrent(f.now())
		}
	})
	f.settle()
}

// becomeCurrent records that the target was served at a time; becomeBehind, that it was not.
func (s *Status) becomeCurrent(at time.Time) { s.Current, s.Behind = at, time.Time{} }

func (s *Status) becomeBehind(at time.Time) {
	if s.Behind.IsZero() {
		s.Behind = at
	}
}

// ended records the result of an attempt to follow. A success does not hide that increments cannot
// be added.
func (f *Follower) ended(err error, problem string) {
	problem = cmp.Or(problem, f.increments.problem)
	f.update(func(s *Status) {
		s.Error, s.FetchFiles, s.FetchedFiles, s.FetchBytes, s.FetchedBytes = problem, 0, 0, 0, 0
		if err != nil && s.LastContact.IsZero() && f.mu.start.goal.Manifest == 0 {
			f.mu.start.goal = goalWithoutContact(f.mu.start, *s)
		}
	})
	f.settle()
}

func (f *Follower) update(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.mu.status)
}
