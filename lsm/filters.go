package lsm

import (
	"sync"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/vfs"
)

// trackFilters passes the filters of a store being opened to their manager, with the
// scores of an earlier run. Pages are loaded in the background.
func (db *DB) trackFilters() {
	path := db.env.path(filtersName)
	scores, err := vfs.ReadFile(db.env.FS, path)
	if err == nil {
		err = db.filters.Restore(path, scores)
	}
	if err != nil && !isNotExist(err) {
		db.env.Logger.Warn("the scores of filter pages could not be restored; the ranking starts from zero", "dir", db.env.dir, "error", err)
	}
	db.filters.Track(db.schedule.current.Load().filters()...)
}

// startFilters starts the background work on filters; stopFilters stops it.
func (db *DB) startFilters() {
	stop := db.filters.Start(db.reportFilters)
	budget := db.options.Budget
	if budget == nil {
		db.stopFilters = stop
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
	db.stopFilters = func() {
		close(quit)
		done.Wait()
		stop()
	}
}

// filterProbes returns the number of probes of the present filters.
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

// updateFilters reports changed tables to the manager. When it returns, no page of a
// removed table is in memory.
func (db *DB) updateFilters() {
	if err := db.filters.Update(db.schedule.current.Load().filters()...); err != nil {
		db.reportFilters(err)
	}
}

func (db *DB) reportFilters(err error) {
	db.env.Logger.Warn("some filter pages could not be loaded", "dir", db.env.dir, "error", err)
}

// saveFilters saves the scores of filter pages. They are optional, so a failure is only
// logged.
func (db *DB) saveFilters() {
	if err := vfs.WriteFileAtomic(db.env.FS, db.env.path(filtersName), db.filters.Scores()); err != nil {
		db.env.Logger.Warn("the scores of filter pages could not be saved", "dir", db.env.dir, "error", err)
	}
}

// checkFilters verifies the saved scores.
func (db *DB) checkFilters() error {
	path := db.env.path(filtersName)
	scores, err := vfs.ReadFile(db.env.FS, path)
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
