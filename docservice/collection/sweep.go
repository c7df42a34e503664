package collection

import (
	"context"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/internal/ctxtime"
	"docstore/lsm"
	"docstore/queue"
)

// sweepStepEntries is the number of index entries that one step of the sweep examines. A
// step takes a few milliseconds; the tail waits at most for the removal of that many
// entries.
const sweepStepEntries = 4096

// sweepGrace is the time from the expiry of a document to the removal of its entry. If the
// clock was ahead and is corrected, a document does not become visible again without its
// entry.
const sweepGrace = time.Hour

// sweeper removes the entries of expired documents from the index.
type sweeper struct {
	*shared
	reader *reader
}

// runSweep removes the entries of expired documents from the index; otherwise they would
// take space until the id is written again. Each pass scans the index once, in steps, while
// the tail has caught up, and pauses after each step for the time the step took. No pass
// runs before an entry is due.
func (w *sweeper) runSweep(ctx context.Context) {
	for ctxtime.Sleep(ctx, w.options.SweepInterval) {
		err := w.sweep(ctx)
		if errors.Is(err, errIndex) {
			w.recordFault(err, queue.Address{})
		}
		if err != nil && ctx.Err() == nil {
			w.logger.Warn("removing expired documents from the index failed; retrying later",
				"interval", w.options.SweepInterval, "error", err)
		}
	}
}

// obsolete returns lsm.Options.Obsolete: merges of the index leave out the entries that a
// sweep would remove, which so has less to do.
func (c *Collection) obsolete() func() func(id, value []byte) bool {
	if c.options.SweepInterval < 0 {
		return nil
	}
	return func() func(id, value []byte) bool {
		expiredAt := c.options.Now().Add(-sweepGrace)
		return func(id, value []byte) bool {
			entry, err := decodeIndexEntry(value)
			return err == nil && len(id) > 0 && entry.expired(expiredAt)
		}
	}
}

// expiries is the earliest expiry, in Unix seconds, of a set of entries; 0: none expires.
type expiries uint32

// add adds an entry to the set.
func (e *expiries) add(expiry uint32) {
	if expiry != 0 && (*e == 0 || expiry < uint32(*e)) {
		*e = expiries(expiry)
	}
}

// sweep runs one pass if an entry is due.
func (w *sweeper) sweep(ctx context.Context) error {
	now := w.options.Now().Add(-sweepGrace)
	w.indexing.Lock()
	known := w.indexing.soonest
	due := indexEntry{expiry: uint32(known)}.expired(now)
	if due {
		w.indexing.soonest = 0 // the tail adds the entries that it writes from here on
	}
	w.indexing.Unlock()
	if !due {
		return nil
	}
	remaining, err := w.sweepAll(ctx, now)
	if err != nil {
		remaining.add(uint32(known))
	}
	w.indexing.Lock()
	w.indexing.soonest.add(uint32(remaining))
	w.indexing.Unlock()
	return err
}

// sweepAll scans the index once, and returns the earliest expiry of the remaining entries.
func (w *sweeper) sweepAll(ctx context.Context, now time.Time) (remaining expiries, err error) {
	var after []byte
	for {
		if err := w.health.waitUntil(ctx, w.health.tailIdle); err != nil {
			return remaining, err
		}
		started := time.Now()
		expired, last, err := w.expired(after, now, &remaining)
		if err == nil {
			err = w.removeExpired(expired, now)
		}
		if err != nil || last == nil {
			return remaining, err
		}
		after = last
		if !ctxtime.Sleep(ctx, time.Since(started)) {
			return remaining, ctx.Err()
		}
	}
}

// expired returns the ids that have expired among the next entries of the index, and the
// last id examined, nil at the end of the index. It adds the expiries of the others to
// remaining.
func (w *sweeper) expired(after []byte, now time.Time, remaining *expiries) (ids [][]byte, last []byte, err error) {
	it := w.index.NewIter(bounds(&docservice.ScanOptions{After: after}))
	defer func() { _ = it.Close() }() // it.Err was checked
	for range sweepStepEntries {
		if !it.Next() {
			return ids, nil, indexError(it.Err())
		}
		entry, err := decodeIndexEntry(it.Value())
		if err != nil {
			return nil, nil, indexError(err)
		}
		if entry.expiry != 0 && entry.expired(now) {
			ids = append(ids, slices.Clone(it.Key()))
		} else {
			remaining.add(entry.expiry)
		}
		last = append(last[:0], it.Key()...)
	}
	return ids, last, nil
}

// removeExpired removes the entries of the ids, except those replaced meanwhile by entries
// that have not expired.
func (w *sweeper) removeExpired(ids [][]byte, now time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	w.indexing.Lock()
	defer w.indexing.Unlock()
	var batch lsm.Batch
	for _, id := range ids {
		entry, err := w.reader.lookUpVerified(id) // damage must not look like an expiry
		if errors.Is(err, lsm.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if entry.expiry == 0 || !entry.expired(now) {
			continue
		}
		if err := batch.Delete(id); err != nil {
			return err
		}
	}
	if err := w.index.Apply(&batch); err != nil {
		return err
	}
	w.collection.swept.Add(uint64(batch.Len()))
	return nil
}
