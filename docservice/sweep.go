package docservice

import (
	"context"
	"slices"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// sweepStepEntries is how many entries of the index a step of the sweep looks
// at: some milliseconds of work, and the most that the tail has to wait for
// behind it is the removal of so many.
const sweepStepEntries = 4096

// sweepGrace is for how long a document has to have expired before its entry
// goes: one that is gone does not come back when a clock that was ahead is set
// right.
const sweepGrace = time.Hour

// runSweep takes the entries of expired documents out of the index, for nobody
// else would: a document that has expired is not found, but its entry takes
// space until the id is written again. Each pass goes once through the index, in
// steps, while the tail has nothing to read, and rests after each for as long
// as the step took. There is no pass before something is due.
func (s *store) runSweep(ctx context.Context) {
	for sleep(ctx, s.options.SweepInterval) {
		err := s.sweep(ctx)
		if errors.Is(err, errIndex) {
			s.recordFault(err, queue.Address{})
		}
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("expired documents cannot be taken out of the index; trying again later",
				"interval", s.options.SweepInterval, "error", err)
		}
	}
}

// expiries is the least time of expiry, Unix seconds, of a set of entries; 0 is
// that none of them expires.
type expiries uint32

// add adds an entry to the set.
func (e *expiries) add(expiry uint32) {
	if expiry != 0 && (*e == 0 || expiry < uint32(*e)) {
		*e = expiries(expiry)
	}
}

// sweep makes one pass, if something is due.
func (s *store) sweep(ctx context.Context) error {
	now := s.options.Now().Add(-sweepGrace)
	s.indexing.Lock()
	known := s.indexing.soonest
	due := indexEntry{expiry: uint32(known)}.expired(now)
	if due {
		s.indexing.soonest = 0 // the tail adds what it writes from here on
	}
	s.indexing.Unlock()
	if !due {
		return nil
	}
	remaining, err := s.sweepAll(ctx, now)
	if err != nil {
		remaining.add(uint32(known))
	}
	s.indexing.Lock()
	s.indexing.soonest.add(uint32(remaining))
	s.indexing.Unlock()
	return err
}

// sweepAll goes once through the index, and returns when the first of what
// stays there expires.
func (s *store) sweepAll(ctx context.Context, now time.Time) (remaining expiries, err error) {
	var after []byte
	for {
		if err := s.waitUntil(ctx, s.tailRests); err != nil {
			return remaining, err
		}
		started := time.Now()
		expired, last, err := s.expired(after, now, &remaining)
		if err == nil {
			err = s.removeExpired(expired, now)
		}
		if err != nil || last == nil {
			return remaining, err
		}
		after = last
		if !sleep(ctx, time.Since(started)) {
			return remaining, ctx.Err()
		}
	}
}

// expired returns the ids that have expired among the next entries of the index,
// and the last of all those it looked at, nil at the end of the index. It adds
// the entries that have not to remaining.
func (s *store) expired(after []byte, now time.Time, remaining *expiries) (ids [][]byte, last []byte, err error) {
	it := s.index.NewIter((&ScanOptions{After: after}).bounds())
	defer func() { _ = it.Close() }() // it.Err has told
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

// removeExpired removes the entries of the ids, unless the tail has put newer
// ones there that have not expired.
func (s *store) removeExpired(ids [][]byte, now time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	s.indexing.Lock()
	defer s.indexing.Unlock()
	var batch lsm.Batch
	for _, id := range ids {
		entry, err := s.lookUpVerified(id) // damage must not make it expire
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
	if err := s.index.Apply(&batch); err != nil {
		return err
	}
	s.collection.swept.Add(uint64(batch.Len()))
	return nil
}
