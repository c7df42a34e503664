package lsm

import (
	"context"
	"slices"
	"time"

	"docstore/lsm/internal/table"

	"github.com/cockroachdb/errors"
)

// Scrub is a Check for background use by a server. It reads at most bytesPerSecond,
// which must be positive, so it can take hours. It needs little memory and references
// one table at a time, so that merges can free space. It returns the first damage, as a
// *CorruptionError.
//
// It does not verify tables that are created or merged while it runs; the next Scrub
// does. It verifies only the checksums of filters, and not the filter scores. It reads
// tables through the page cache: damage on the disk is detected only after the kernel
// has dropped the page.
//
// verified is called with the bytes of tables verified since its last call. It may be
// nil.
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
		err = t.Check(false, rest)
		t.Unref()
		if err != nil {
			return err
		}
	}
	return errors.Join(db.checkManifest()...)
}

// pause waits for d, unless the store or ctx ends.
func (db *DB) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-db.schedule.closing:
		return ErrClosed
	}
}

// tableNumbers returns the numbers of the current tables.
func (db *DB) tableNumbers() (numbers []uint64, err error) {
	v, err := db.acquire()
	if err != nil {
		return nil, err
	}
	defer v.unref()
	for _, t := range v.tables {
		numbers = append(numbers, t.Facts.Number)
	}
	return numbers, nil
}

// holdTable returns a reference to a table, nil if it no longer exists.
func (db *DB) holdTable(number uint64) (*table.Reader, error) {
	v, err := db.acquire()
	if err != nil {
		return nil, err
	}
	defer v.unref()
	i := slices.IndexFunc(v.tables, func(t *table.Reader) bool { return t.Facts.Number == number })
	if i < 0 {
		return nil, nil
	}
	v.tables[i].Ref()
	return v.tables[i], nil
}
