package lsm

import "sync/atomic"

// pin is a hold on a state of the store for as long as its owner likes: a view,
// with memtables that count to the budget, and a sequence number.
type pin struct {
	view     *view
	sequence uint64
	counted  []*memtable // counted as pinned
	budget   *Budget
}

// pin holds the present state.
func (db *DB) pin() (*pin, error) {
	v, sequence, err := db.acquireAt()
	if err != nil {
		return nil, err
	}
	return db.pinView(v, sequence)
}

// pinView makes a pin of a view that is held, and lets go of it after an error.
func (db *DB) pinView(v *view, sequence uint64) (*pin, error) {
	p := &pin{view: v, sequence: sequence, budget: db.options.Budget}
	for _, m := range v.memtables {
		if !m.pin(db.mostMemtableBytes()) {
			p.release()
			return nil, ErrBudget
		}
		p.counted = append(p.counted, m)
	}
	return p, nil
}

// release lets go. Only once.
func (p *pin) release() {
	for _, m := range p.counted {
		m.unpin()
	}
	p.view.unref()
}

// Snapshot is the store as it was when NewSnapshot was called. Its methods may
// be called from many goroutines at once. Tables and memtables that it needs
// stay until it is closed.
type Snapshot struct {
	db     *DB
	pin    *pin // nil if there is an err
	err    error
	closed atomic.Bool
}

// NewSnapshot takes a snapshot. If the DB is closed, or if what the snapshot
// would keep in memory exceeds Options.Budget, then every use of it returns
// ErrClosed or ErrBudget. Close it in any case.
func (db *DB) NewSnapshot() *Snapshot {
	p, err := db.pin()
	return &Snapshot{db: db, pin: p, err: err}
}

// hold makes sure that the view is not let go of during a call: whoever is counted
// before closed is set is counted before Close counts the pin out.
func (s *Snapshot) hold() error {
	if s.err != nil {
		return s.err
	}
	s.pin.view.ref()
	if s.closed.Load() || s.db.current.Load() == nil {
		s.pin.view.unref()
		return ErrClosed
	}
	return nil
}

// Get is DB.Get of the snapshot.
func (s *Snapshot) Get(dst, key []byte) ([]byte, error) {
	if err := s.hold(); err != nil {
		return dst, err
	}
	dst, err := s.pin.view.get(dst, key, s.pin.sequence)
	s.pin.view.unref()
	return dst, err
}

// NewIter is DB.NewIter of the snapshot. The iterator may outlive the snapshot.
func (s *Snapshot) NewIter(o *IterOptions) *Iterator {
	if err := s.hold(); err != nil {
		return &Iterator{db: s.db, failure: err}
	}
	p, err := s.db.pinView(s.pin.view, s.pin.sequence)
	return newIterator(s.db, p, err, o)
}

// Close lets go of what the snapshot holds. It may be called again.
func (s *Snapshot) Close() error {
	if !s.closed.Swap(true) && s.pin != nil {
		s.pin.release()
	}
	return nil
}
