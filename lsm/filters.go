package lsm

import (
	"sync"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/vfs"
)

// trackFilters gives the filters of a store that opens to their manager, with
// what an earlier run has learnt about them. Their pages come into memory in the
// background.
func (db *DB) trackFilters() {
	path := db.env.path(filtersName)
	scores, err := vfs.ReadFile(db.env.fs, path)
	if err == nil {
		err = db.filters.Restore(path, scores)
	}
	if err != nil && !isNotExist(err) {
		db.env.logger.Warn("which filter pages are useful has to be learnt anew", "dir", db.env.dir, "error", err)
	}
	db.filters.Track(db.current.Load().filters()...)
}

// startFilters begins the background work on filters, until stopFilters.
func (db *DB) startFilters() {
	stop := db.filters.Start(db.reportFilters)
	budget := db.options.Budget
	if budget == nil {
		db.stopFilters = stop
		return
	}
	budget.divide(time.Now(), true) // what the filters take is known by now
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
	db.stopFilters = func() {
		close(quit)
		done.Wait()
		stop()
	}
}

// filterProbes is how often the filters were asked.
func (db *DB) filterProbes() (probes uint64) {
	v, err := db.acquire()
	if err != nil {
		return 0
	}
	defer v.unref()
	for _, f := range v.filters() {
		probes += f.Stats().Probes
	}
	return probes
}

// updateFilters tells the manager that tables have come or gone. The pages of
// those that are gone are out of memory when it returns.
func (db *DB) updateFilters() {
	if err := db.filters.Update(db.current.Load().filters()...); err != nil {
		db.reportFilters(err)
	}
}

func (db *DB) reportFilters(err error) {
	db.env.logger.Warn("some filter pages could not be loaded", "dir", db.env.dir, "error", err)
}

// saveFilters writes down what is known about filters. A store can do without,
// so a failure is not the caller's.
func (db *DB) saveFilters() {
	if err := vfs.WriteFileAtomic(db.env.fs, db.env.path(filtersName), db.filters.Scores()); err != nil {
		db.env.logger.Warn("the scores of filter pages could not be saved", "dir", db.env.dir, "error", err)
	}
}

// checkFilters verifies what is written down about filters.
func (db *DB) checkFilters() error {
	path := db.env.path(filtersName)
	scores, err := vfs.ReadFile(db.env.fs, path)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return errors.Wrap(err, "lsm: read what is known about filters")
	}
	err = bloom.NewManager(0).Restore(path, scores)
	var damage *bloom.CorruptionError
	if errors.As(err, &damage) {
		return errors.WithStack(&CorruptionError{Path: path, Offset: damage.Offset, Reason: damage.Reason})
	}
	return err
}
