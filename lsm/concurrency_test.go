package lsm

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// selfVerifying returns a value: round | checksum of key and round | filler.
func selfVerifying(key []byte, round uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, round)
	b = binary.LittleEndian.AppendUint32(b, checksum.Of(key, b))
	return append(b, make([]byte, round%97)...)
}

func verifySelf(key, value []byte) (round uint64, err error) {
	if len(value) < 12 {
		return 0, errors.Newf("value of %d bytes for %q", len(value), key)
	}
	round = binary.LittleEndian.Uint64(value)
	if binary.LittleEndian.Uint32(value[8:]) != checksum.Of(key, value[:8]) || len(value) != 12+int(round%97) {
		return 0, errors.Newf("not a value of %q", key)
	}
	return round, nil
}

// TestConcurrency runs writers, readers, iterators, snapshots, flushes, checks,
// checkpoints and followers concurrently, and closes the store while they run.
func TestConcurrency(t *testing.T) {
	r := testseed.Rand(t)
	for range crashtest.Share(1, 100) {
		for _, durability := range []Durability{ProcessCrash, PowerLoss} {
			concurrency(t, r, durability)
		}
	}
}

const (
	pairs  = 200 // pairs of keys that are written in one batch
	rounds = 20  // of each writer
)

func pair(i int) (a, b []byte) {
	return fmt.Appendf(nil, "a%04d", i), fmt.Appendf(nil, "b%04d", i)
}

func concurrency(t *testing.T, r *rand.Rand, durability Durability) {
	o := Options{FS: vfs.NewMem(), MemtableBytes: 16 << 10, FilterBytes: 8 << 10, Durability: durability}
	db, err := Open("db", &o)
	require.NoError(t, err)

	var writers, others sync.WaitGroup
	var done atomic.Bool
	written := make([]atomic.Uint64, pairs) // acknowledged rounds
	for w := range 2 {
		writers.Go(func() {
			var b Batch
			for round := uint64(1); round <= rounds; round++ {
				for i := w; i < pairs; i += 2 {
					first, second := pair(i)
					b.Reset()
					_ = b.Set(first, selfVerifying(first, round))
					_ = b.Set(second, selfVerifying(second, round))
					if err := db.Apply(&b); err != nil {
						t.Errorf("write: %+v", err)
						return
					}
					written[i].Store(round)
				}
			}
		})
	}
	// task runs until all writes are done, or until the store is closed.
	task := func(name string, seed uint64, once func(r *rand.Rand) error) {
		others.Go(func() {
			r := rand.New(rand.NewPCG(seed, 0))
			for {
				if err := once(r); errors.Is(err, ErrClosed) && done.Load() {
					return
				} else if err != nil {
					t.Errorf("%s: %+v", name, err)
					return
				}
			}
		})
	}
	task("get", r.Uint64(), func(r *rand.Rand) error {
		i := r.IntN(pairs)
		key, _ := pair(i)
		return getPair(db, key, written[i].Load())
	})
	task("snapshot", r.Uint64(), func(r *rand.Rand) error {
		s := db.NewSnapshot()
		defer s.Close()
		for range 20 {
			if err := comparePair(s, r.IntN(pairs)); err != nil {
				return err
			}
		}
		return nil
	})
	task("iterator", r.Uint64(), func(r *rand.Rand) error {
		it := db.NewIter(nil)
		defer it.Close()
		return errors.CombineErrors(walkPairs(it, r.IntN(2) == 0), it.Err())
	})
	checkpoint := 0
	task("maintenance", r.Uint64(), func(r *rand.Rand) error {
		checkpoint++
		name := fmt.Sprintf("checkpoint%d", checkpoint)
		_ = db.Stats()
		if err := errors.CombineErrors(db.Check(), db.Checkpoint(name)); err != nil {
			return err
		}
		return errors.CombineErrors(db.Flush(), o.FS.RemoveAll(name))
	})
	follower, err := Open("db", &Options{FS: o.FS, Follow: true})
	require.NoError(t, err)
	task("follower", r.Uint64(), func(r *rand.Rand) error {
		_, err := follower.Refresh(t.Context())
		it := follower.NewIter(nil)
		defer it.Close()
		return errors.CombineErrors(err, walkPairs(it, r.IntN(2) == 0))
	})
	task("verification of the follower", r.Uint64(), func(*rand.Rand) error {
		_ = follower.Stats()
		return errors.CombineErrors(follower.Check(), follower.Scrub(t.Context(), math.MaxInt64, nil))
	})
	writers.Wait()
	require.NoError(t, db.WaitIdle(t.Context()))
	done.Store(true)
	require.NoError(t, db.Close())
	require.NoError(t, follower.Close())
	others.Wait()

	db, err = Open("db", &o)
	require.NoError(t, err)
	for i := range pairs {
		key, _ := pair(i)
		require.NoError(t, getPair(db, key, rounds))
	}
	require.NoError(t, db.Close())
}

// getPair requires that a key has a value of round least or later.
func getPair(db interface {
	Get(dst, key []byte) ([]byte, error)
}, key []byte, least uint64) error {
	value, err := db.Get(nil, key)
	if errors.Is(err, ErrNotFound) && least == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	round, err := verifySelf(key, value)
	if err == nil && round < least {
		err = errors.Newf("%q of round %d, want %d", key, round, least)
	}
	return err
}

// comparePair requires that both keys of a pair are of one batch.
func comparePair(s *Snapshot, i int) error {
	var got [2]uint64
	first, second := pair(i)
	for j, key := range [][]byte{first, second} {
		value, err := s.Get(nil, key)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if got[j], err = verifySelf(key, value); err != nil {
			return err
		}
	}
	if got[0] != got[1] {
		return errors.Newf("pair %d: rounds %d and %d", i, got[0], got[1])
	}
	return nil
}

// walkPairs compares the pairs in an iterator.
func walkPairs(it *Iterator, backwards bool) error {
	move, step := it.First, it.Next
	if backwards {
		move, step = it.Last, it.Prev
	}
	seen := map[string]uint64{}
	last := ""
	for ok := move(); ok; ok = step() {
		key := string(it.Key())
		if last != "" && (key > last) == backwards {
			return errors.Newf("%q after %q", key, last)
		}
		last = key
		round, err := verifySelf(it.Key(), it.Value())
		if err != nil {
			return err
		}
		if other, found := seen[key[1:]]; found && other != round {
			return errors.Newf("pair %s: rounds %d and %d", key[1:], other, round)
		}
		seen[key[1:]] = round
	}
	return it.Err()
}
