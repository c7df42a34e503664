package follow

import (
	"time"

	"docstore/docservice/collection"
	"docstore/queue"
	"docstore/queue/publish"
)

// Status is the state of a Follower.
type Status struct {
	Announced uint64       // number of the announced manifest; 0: none is known
	Target    uint64       // of the manifest to be served
	Served    uint64       // of the manifest whose files the served collection has; 0: none
	Pin       *publish.Pin // that determines the target; nil: none
	// Increment is the number of the last increment of the served manifest that was added to
	// it; 0: none. IncrementTime is the time at which it was published.
	Increment     uint64
	IncrementTime time.Time
	// Held is the reason why a stream has stopped to announce; empty: it has not.
	Held string
	// Behind is the time since which the target is not served; zero: it is served.
	Behind time.Time
	// FetchedBytes of FetchBytes have been fetched for the move in progress, at FetchRate
	// bytes per second.
	FetchedBytes, FetchBytes int64
	FetchRate                float64
	// PeerBytes and BucketBytes were fetched from other servers and from the bucket since
	// Open, in complete files.
	PeerBytes, BucketBytes int64
	// Error is why the last attempt to follow failed; empty: it succeeded.
	Error string
	// LastContact is the time at which the record was last read. Current is the time at
	// which the target was last read and served; at first, the time of Open.
	LastContact, Current time.Time
	// NotReady is why the collection is not ready, as described in the package comment;
	// empty: it is.
	NotReady string
}

// start decides when a Follower becomes ready for the first time.
type start struct {
	opened  time.Time
	goal    uint64 // the manifest to be reached; 0: not known yet
	reached bool
}

// Status returns the current state.
func (f *Follower) Status() Status {
	f.mu.Lock()
	s, serving, dir := f.mu.status, f.mu.serving, f.mu.queue
	if elapsed := f.now().Sub(f.mu.began).Seconds(); s.FetchBytes > 0 && elapsed > 0 {
		s.FetchRate = float64(s.FetchedBytes) / elapsed
	}
	first := f.mu.start
	f.mu.Unlock()
	now := f.now()
	if first.goal = startGoal(first, s, now); !first.reached && atGoal(first.goal, s) && f.indexed(serving, dir) {
		first.reached = true
		f.mu.Lock()
		f.mu.start.reached = true
		f.mu.Unlock()
	}
	s.NotReady = notReady(first, s, f.options.MaxStaleness, now)
	return s
}

// indexed reports whether the index of a collection includes the end of its manifest.
func (f *Follower) indexed(c *collection.Collection, dir string) bool {
	head, err := queue.ReadHead(f.fs, dir)
	return err == nil && c.Ready() && c.Status().Position.Next.Compare(head.End.Next) >= 0
}

// FilesDir returns the directory of the files that are complete and verified, and may be
// copied to other servers.
func (f *Follower) FilesDir() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.queue
}

// targetRead records what the record said when it was read.
func (f *Follower) targetRead(record publish.Record, target publish.Ref, now time.Time) {
	f.update(func(s *Status) {
		s.Held = record.Held
		s.Announced, s.Target, s.Pin, s.LastContact = record.Announced.Number, target.Number, record.PinOf(f.options.Group), now
		switch {
		case target.Number == s.Served:
			s.Current, s.Behind = now, time.Time{}
		case s.Behind.IsZero():
			s.Behind = now
		}
		if f.mu.start.goal == 0 {
			f.mu.start.goal = target.Number
		}
	})
}

// arrived records that a manifest is served.
func (f *Follower) arrived(target publish.Ref) {
	f.update(func(s *Status) {
		s.Served, s.Current, s.Behind = target.Number, f.now(), time.Time{}
		s.Increment, s.IncrementTime = 0, time.Time{}
	})
}

// ended records the result of an attempt to follow.
func (f *Follower) ended(err error, problem string) {
	f.update(func(s *Status) {
		s.Error, s.FetchBytes, s.FetchedBytes = problem, 0, 0
		if err != nil && f.mu.start.goal == 0 {
			f.mu.start.goal = s.Served // static stability: without the bucket, the manifest that is here
		}
	})
}

func (f *Follower) update(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.mu.status)
}
