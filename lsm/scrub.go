package lsm

import (
	"context"
	"slices"
	"time"

	"github.com/cockroachdb/errors"
)

// Scrub is a Check for the background of a server. It reads no more than so many bytes
// a second, which takes hours where there are many, needs no memory to speak of, and
// holds on to one table at a time, so that merges go on to free space. It returns the
// first damage, as a *CorruptionError where it is one. bytesPerSecond must be positive.
//
// It leaves out tables that are made meanwhile, and those that a merge reads to their
// ends meanwhile: the next Scrub is for these. Of filters it compares the checksums
// alone, and nothing of what is known about them, which a store can do without. What of
// a table is in the page cache it verifies there: damage beneath shows when the kernel
// has dropped the page.
//
// verified is told of the bytes of tables that have been verified since it was told
// last. It may be nil.
func (db *DB) Scrub(ctx context.Context, bytesPerSecond int64, verified func(bytes int64)) error {
	rest := func(bytes int64) error {
		if verified != nil {
			verified(bytes)
		}
		return db.pause(ctx, time.Duration(float64(bytes)/float64(bytesPerSecond)*float64(time.Second)))
	}
	numbers, err := db.tableNumbers()
	if err != nil {
		return err
	}
	for _, number := range numbers {
		t, err := db.holdTable(number)
		if err != nil {
			return err
		}
		if t == nil {
			continue // merged
		}
		err = db.checkTable(t, false, rest)
		t.unref()
		if err != nil {
			return err
		}
	}
	return errors.Join(db.checkManifest()...)
}

// pause waits, unless the store or ctx ends.
func (db *DB) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-db.closing:
		return ErrClosed
	}
}

// tableNumbers are those of the present tables.
func (db *DB) tableNumbers() (numbers []uint64, err error) {
	v, err := db.acquire()
	if err != nil {
		return nil, err
	}
	defer v.unref()
	for _, t := range v.tables {
		numbers = append(numbers, t.facts.number)
	}
	return numbers, nil
}

// holdTable returns a table, held, or nil if there is none of the number any more.
func (db *DB) holdTable(number uint64) (*table, error) {
	v, err := db.acquire()
	if err != nil {
		return nil, err
	}
	defer v.unref()
	i := slices.IndexFunc(v.tables, func(t *table) bool { return t.facts.number == number })
	if i < 0 {
		return nil, nil
	}
	v.tables[i].ref()
	return v.tables[i], nil
}
