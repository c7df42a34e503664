package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"docstore/bench/internal/authority"
)

const (
	// The downtime of a restarting task.
	away = time.Second
	// The time from removing a task from the set to stopping it.
	notice = time.Second
	// restartBlock is the number of consecutive tasks that restart at once.
	restartBlock = 10
)

// sizes are the steps of the article's figure 5, relative to the first size.
var sizes = []float64{1, 61.0 / 60, 63.0 / 60, 68.0 / 60, 80.0 / 60, 68.0 / 60, 1}

// A step is a change of the backends and of the set.
type step struct {
	name   string
	change func(e *experiment) error
}

func scenarioNamed(name string, backends int) (steps []step, err error) {
	switch name {
	case "resize":
		for i, part := range sizes[1:] {
			before, after := int(sizes[i]*float64(backends)+0.5), int(part*float64(backends)+0.5)
			steps = append(steps, step{fmt.Sprintf("%d to %d backends", before, after), func(e *experiment) error {
				return e.resize(before, after)
			}})
		}
	case "restart", "restart-listed":
		for first := 0; first < backends; first += restartBlock {
			last := min(first+restartBlock, backends) - 1
			steps = append(steps, step{fmt.Sprintf("backends %d to %d are restarted", first, last), func(e *experiment) error {
				return e.restart(first, last, name == "restart-listed")
			}})
		}
	default:
		return nil, fmt.Errorf("unknown scenario %q: must be resize, restart or restart-listed", name)
	}
	return steps, nil
}

// An experiment is a running trial.
type experiment struct {
	backends  *backends
	frontends *frontends
	meter     *meter
	promised  int // new connections of all changes according to the algorithm
}

// run runs an experiment and reports the costs of its changes.
func (t trial) run(s settings, steps []step, progress io.Writer) (_ map[string]float64, err error) {
	a, err := authority.New()
	if err != nil {
		return nil, err
	}
	e := &experiment{backends: newBackends(s, a), meter: &meter{}}
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
	e.tell(s.backends)
	if err := e.frontends.ready(); err != nil {
		return nil, err
	}
	e.promised = 0
	time.Sleep(s.warmUp)
	var all []period
	for _, x := range steps {
		begin, promised := time.Now(), e.promised
		e.meter.begin()
		if err := x.change(e); err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, err)
		}
		time.Sleep(s.settle - time.Since(begin)) // a change may also take longer
		p := period{step: x.name, promised: e.promised - promised, change: e.meter.end()}
		e.meter.begin()
		time.Sleep(s.every - s.settle)
		p.settled = e.meter.end()
		all = append(all, p)
		if _, err := fmt.Fprintf(progress, "%s: %s\n", t.name(), p); err != nil {
			return nil, err
		}
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
		e.tell(after)
		return nil
	}
	e.tell(after)
	time.Sleep(notice)
	return e.backends.stop(after, before-1)
}

// restart drains, stops and starts tasks. Listed tasks stay in the set.
func (e *experiment) restart(first, last int, listed bool) error {
	set := e.frontends.set
	if listed {
		e.promised += e.frontends.connectionsTo(first, last)
	} else {
		e.tell(set.numbers, slices.Collect(between(first, last))...)
	}
	if err := e.backends.stop(first, last); err != nil {
		return err
	}
	time.Sleep(away)
	if err := e.backends.start(first, last); err != nil {
		return err
	}
	if !listed {
		e.tell(set.numbers)
	}
	return nil
}

// tell passes the set of n backends without the missing ones to the frontends.
func (e *experiment) tell(numbers int, missing ...int) {
	e.promised += e.frontends.tell(backendSet{numbers, missing})
}

func between(first, last int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for n := first; n <= last && yield(n); n++ {
		}
	}
}

// each calls a function for several tasks concurrently.
func each(first, last int, do func(n int) error) error {
	errs := make([]error, last-first+1)
	var doing sync.WaitGroup
	for n := range between(first, last) {
		doing.Go(func() { errs[n-first] = do(n) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
