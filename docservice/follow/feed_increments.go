package follow

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"docstore/internal/ctxtime"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

const (
	// A Feed keeps the last increments for the Followers that have not added them yet, and
	// more headers, which Followers compare with their files when they open.
	maxKeptIncrements     = 16
	maxKeptIncrementBytes = 64 << 20
	maxKeptHeaders        = 64
)

// stream is what a Feed knows about the increments of the announced manifest. Feed.reading
// guards kept and headers; the goroutine of run uses the rest.
type stream struct {
	pace    increments // interval and last
	kept    []keptIncrement
	headers []keptIncrement
}

// newest is the newest increment that exists.
type newest struct {
	base   publish.Ref // number 0: not known
	number uint64      // 0: none
}

type keptIncrement struct {
	base publish.Ref
	publish.StoredIncrement
}

// follow waits until the record is to be read again, and reads increments meanwhile.
func (f *Feed) follow(ctx context.Context, own *logReader, record publish.Record, pause time.Duration) error {
	base := record.Announced
	if !record.Increments || base.Number == 0 || record.IsBad(base.Number) {
		waitCommit(ctx, own, pause)
		return nil
	}
	if _, known, _ := f.now(); known.base != base {
		number, err := publish.NewestIncrement(ctx, f.bucket, base)
		if err != nil {
			return err
		}
		f.found(newest{base, number})
	}
	end, woken := time.Now().Add(pause), false
	for ctx.Err() == nil {
		_, known, _ := f.now()
		i, err := f.read(ctx, base, known.number+1)
		if err == nil {
			f.stream.pace.last, woken = time.Now(), false
			f.found(newest{base, i.Number})
			continue
		}
		if !errors.Is(err, bucket.ErrNotExist) {
			return err
		}
		wait := f.stream.pace.next(time.Now(), f.options.PollInterval)
		if own.watches() && !woken {
			if own.wait(ctx, known.number, wait, watchLimit) {
				return nil
			}
			woken = true
			continue
		}
		woken = false // the increment cannot be read yet
		if rest := time.Until(end); wait >= rest {
			ctxtime.Sleep(ctx, rest)
			return nil
		}
		ctxtime.Sleep(ctx, wait/2+rand.N(wait))
	}
	return nil
}

// waitCommit waits for a commit, or for pause if no arbiter wakes this server.
func waitCommit(ctx context.Context, own *logReader, pause time.Duration) {
	if own.watches() {
		own.wait(ctx, math.MaxUint64, pause, watchLimit)
		return
	}
	ctxtime.Sleep(ctx, pause)
}

// found records the newest increment and wakes the Followers.
func (f *Feed) found(n newest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.newest = n
	f.wakeLocked()
}

// read returns an increment that is kept, or reads it.
func (f *Feed) read(ctx context.Context, base publish.Ref, number uint64) (publish.StoredIncrement, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	if i, found := findIncrement(f.stream.kept, base, number); found {
		return i, nil
	}
	m, err := f.readManifestLocked(ctx, base)
	if err != nil {
		return publish.StoredIncrement{}, err
	}
	i, err := publish.NewIncrementReader(f.bucket, m).ReadIncrement(ctx, base, number)
	if err != nil {
		return publish.StoredIncrement{}, err
	}
	f.stream.kept = append(f.stream.kept, keptIncrement{base, i})
	bytes := int64(0)
	for n, k := range slices.Backward(f.stream.kept) {
		if bytes += k.Bytes(); bytes > maxKeptIncrementBytes && n < len(f.stream.kept)-1 || len(f.stream.kept)-n > maxKeptIncrements {
			f.stream.kept = slices.Delete(f.stream.kept, 0, n+1)
			break
		}
	}
	return i, nil
}

// readHeader is read for the header alone.
func (f *Feed) readHeader(ctx context.Context, base publish.Ref, number uint64) (publish.StoredIncrement, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	for _, kept := range [][]keptIncrement{f.stream.kept, f.stream.headers} {
		if i, found := findIncrement(kept, base, number); found {
			return i, nil
		}
	}
	m, err := f.readManifestLocked(ctx, base)
	if err != nil {
		return publish.StoredIncrement{}, err
	}
	i, err := publish.NewIncrementReader(f.bucket, m).ReadHeader(ctx, base, number)
	if err != nil {
		return publish.StoredIncrement{}, err
	}
	if len(f.stream.headers) == maxKeptHeaders {
		f.stream.headers = slices.Delete(f.stream.headers, 0, 1)
	}
	f.stream.headers = append(f.stream.headers, keptIncrement{base, i})
	return i, nil
}

func findIncrement(kept []keptIncrement, base publish.Ref, number uint64) (publish.StoredIncrement, bool) {
	for _, k := range kept {
		if k.base == base && k.Number == number {
			return k.StoredIncrement, true
		}
	}
	return publish.StoredIncrement{}, false
}

// feedIncrements reads increments for the Followers of a Feed. It asks the bucket only for
// those that exist.
type feedIncrements struct{ feed *Feed }

// ReadIncrement implements publish.IncrementReader.
func (r feedIncrements) ReadIncrement(ctx context.Context, base publish.Ref, number uint64) (publish.StoredIncrement, error) {
	if r.isMissing(base, number) {
		return publish.StoredIncrement{}, bucket.ErrNotExist
	}
	return r.feed.read(ctx, base, number)
}

// ReadHeader implements publish.IncrementReader.
func (r feedIncrements) ReadHeader(ctx context.Context, base publish.Ref, number uint64) (publish.StoredIncrement, error) {
	if r.isMissing(base, number) {
		return publish.StoredIncrement{}, bucket.ErrNotExist
	}
	return r.feed.readHeader(ctx, base, number)
}

// isMissing reports whether an increment did not exist when the Feed looked for it last.
func (r feedIncrements) isMissing(base publish.Ref, number uint64) bool {
	_, newest, _ := r.feed.now()
	return newest.base == base && number > newest.number
}
