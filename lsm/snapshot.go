package lsm

import (
	"sync/atomic"

	"docstore/lsm/internal/memtable"
)

// pin is a long-term reference to a state of the store: a view, whose memtables count
// to the budget, and a sequence number.
type pin struct {
	view     *view
	sequence uint64
	counted  []*memtable.Memtable // counted as pinned
	budget   *Budget
}

// pin pins the current state.
func (db *DB) pin() (*pin, error) {
	v, sequence, err := db.acquireAt()
	if err != nil {
		return nil, err
	}
	return db.pinView(v, sequence)
}

// pinView makes a pin of a referenced view; on error it releases the reference.
func (db *DB) pinView(v *view, sequence uint64) (*pin, error) {
	p := &pin{view: v, sequence: sequence, budget: db.options.Budget}
	for _, m := range v.memtables {
		if !m.Pin(db.mostMemtableBytes()) {
			p.release()
			return nil, ErrBudget
		}
		p.counted = append(p.counted, m)
	}
	return p, nil
}

// release releases the pin. It must be called once.
func (p *pin) release() {
	for _, m := range p.counted {
		m.Unpin()
	}
	p.view.unref()
}

// Snapshot is the state of the store at the call of NewSnapshot. It is safe for
// concurrent use. Its tables and memtables are retained until it is closed.
type Snapshot struct {
	db     *DB
	pin    *pin // nil if err is set
	err    error
	closed atomic.Bool
}

// NewSnapshot returns a snapshot. If the DB is closed, or if the memtables of the
// snapshot exceed Options.Budget, all its methods return ErrClosed or ErrBudget. The
// snapshot must always be closed.
func (db *DB) NewSnapshot() *Snapshot {
	p, err := db.pin()
	return &Snapshot{db: db, pin: p, err: err}
}

// hold prevents the release of the view during a call: a reader counted before closed
// is set is counted before Close releases the pin.
func (s *Snapshot) hold() error {
	if s.err != nil {
		return s.err
	}
	s.pin.view.ref()
	if s.closed.Load() || s.db.schedule.current.Load() == nil {
		s.pin.view.unref()
		return ErrClosed
	}
	return nil
}

// Get is DB.Get at the snapshot.
func (s *Snapshot) Get(dst, key []byte) ([]byte, error) {
	if err := s.hold(); err != nil {
		return dst, err
	}
	dst, err := s.pin.view.get(dst, key, s.pin.sequence)
	s.pin.view.unref()
	return dst, err
}

// Close releases the snapshot. It is idempotent.
func (s *Snapshot) Close() error {
	if !s.closed.Swap(true) && s.pin != nil {
		s.pin.release()
	}
	return nil
}
