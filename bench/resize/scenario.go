package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"docstore/bench/internal/authority"
)

// notice is the time from removing a task from the set to stopping it.
const notice = time.Second

// sizes are the steps of the article's figure 5, relative to the size at the start.
var sizes = []float64{61.0 / 60, 63.0 / 60, 68.0 / 60, 80.0 / 60, 68.0 / 60, 1}

// An experiment is a running trial.
type experiment struct {
	backends  *backends
	frontends *frontends
	meter     *meter
}

// run runs an experiment and reports the costs of its changes.
func (t trial) run(s settings) (_ map[string]float64, err error) {
	a, err := authority.New()
	if err != nil {
		return nil, err
	}
	e := &experiment{backends: &backends{authority: a, running: map[int]*backend{}}, meter: &meter{}}
	defer func() { err = errors.Join(err, e.backends.close()) }()
	if err := e.backends.start(0, s.backends-1); err != nil {
		return nil, err
	}
	e.frontends, err = newFrontends(s, t, a, e.meter)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.frontends.close()) }()
	e.meter.begin()
	e.frontends.tell(s.backends)
	if err := e.frontends.ready(); err != nil {
		return nil, err
	}
	time.Sleep(s.warmUp)
	var all []period
	before := s.backends
	for _, size := range sizes {
		after := int(size*float64(s.backends) + 0.5)
		begin := time.Now()
		e.meter.begin()
		if err := e.resize(before, after); err != nil {
			return nil, fmt.Errorf("%d to %d backends: %w", before, after, err)
		}
		before = after
		time.Sleep(s.settle - time.Since(begin)) // a change may also take longer
		p := period{change: e.meter.end()}
		e.meter.begin()
		time.Sleep(s.every - s.settle)
		p.settled = e.meter.end()
		all = append(all, p)
	}
	// Requests that began in the last period end within their deadline.
	e.meter.begin()
	time.Sleep(s.deadline)
	return figuresOf(all), nil
}

// resize starts tasks and then adds them to the set, or removes tasks from the set and
// stops them later.
func (e *experiment) resize(before, after int) error {
	if after > before {
		if err := e.backends.start(before, after-1); err != nil {
			return err
		}
		e.frontends.tell(after)
		return nil
	}
	e.frontends.tell(after)
	time.Sleep(notice)
	return e.backends.stop(after, before-1)
}

// each calls a function for several tasks concurrently.
func each(first, last int, do func(n int) error) error {
	errs := make([]error, last-first+1)
	var doing sync.WaitGroup
	for n := first; n <= last; n++ {
		doing.Go(func() { errs[n-first] = do(n) })
	}
	doing.Wait()
	return errors.Join(errs...)
}
