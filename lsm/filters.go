package lsm

import (
	"sync"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/vfs"
)

// filterSet is the filters of a store, with the file of their scores, which are optional.
type filterSet struct {
	*bloom.Manager
	env  *environment
	stop func() // stops the background work; set by start
}

// restore reads the scores of an earlier run.
func (f *filterSet) restore() {
	path := f.env.path(filtersName)
	scores, err := vfs.ReadFile(f.env.FS, path)
	if err == nil {
		err = f.Restore(path, scores)
	}
	if err != nil && !isNotExist(err) {
		f.env.Logger.Warn("the scores of filter pages could not be restored; the ranking starts from zero", "dir", f.env.dir, "error", err)
	}
}

// start starts the background work. It also divides the budget, which may be nil, from time
// to time.
func (f *filterSet) start(budget *Budget) {
	stop := f.Start(f.report)
	if budget == nil {
		f.stop = stop
		return
	}
	budget.divide(time.Now(), true) // the size of the filters is known now
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(divideInterval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				budget.divide(time.Now(), false)
			}
		}
	})
	f.stop = func() {
		close(quit)
		done.Wait()
		stop()
	}
}

// replace makes these the filters. When it returns, no page of another one is in memory.
func (f *filterSet) replace(filters []*bloom.Filter) {
	if err := f.Update(filters...); err != nil {
		f.report(err)
	}
}

func (f *filterSet) report(err error) {
	f.env.Logger.Warn("some filter pages could not be loaded", "dir", f.env.dir, "error", err)
}

// save saves the scores.
func (f *filterSet) save() {
	if err := vfs.WriteFileAtomic(f.env.FS, f.env.path(filtersName), f.Scores()); err != nil {
		f.env.Logger.Warn("the scores of filter pages could not be saved", "dir", f.env.dir, "error", err)
	}
}

// check verifies the saved scores.
func (f *filterSet) check() error {
	path := f.env.path(filtersName)
	scores, err := vfs.ReadFile(f.env.FS, path)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return errors.Wrap(err, "lsm: read the filter scores")
	}
	err = bloom.NewManager(0).Restore(path, scores)
	var damage *bloom.CorruptionError
	if errors.As(err, &damage) {
		return errors.WithStack(&CorruptionError{Path: path, Offset: damage.Offset, Reason: damage.Reason})
	}
	return err
}
