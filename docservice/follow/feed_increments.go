package follow

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"docstore/internal/ctxtime"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

const (
	// A Feed keeps the last increments for the Followers that have not added them yet, and
	// more headers, which Followers compare with their files when they open.
	maxKeptIncrements     = 2 * publish.MaxAhead
	maxKeptIncrementBytes = 64 << 20
	maxKeptHeaders        = 64

	// headerTurns separates numbers that a Follower looks for at the same time.
	headerTurns = 37
)

// stream is what a Feed knows about the increments of the announced manifest. The goroutine of
// run uses the fields outside of mu.
type stream struct {
	pace  increments // interval and last
	ahead int        // increments that are read next
	full  bool       // the last read found all that it looked for

	// reading is held while Followers read increments, so that each is read once.
	reading turn
	// headers are held while the header of a number is read, so that each is read once.
	headers [headerTurns]turn

	mu struct {
		sync.Mutex
		kept      []keptIncrement
		keptBytes int64 // of kept
		headers   []keptIncrement
	}
}

// newest is the newest increment that exists.
type newest struct {
	base    publish.Ref // number 0: not known
	number  uint64      // 0: none
	checked time.Time   // when there was no later one
	behind  bool        // there are probably later ones
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
		checked := f.options.Now()
		number, err := own.newest(ctx, base)
		if errors.Is(err, errRetargeted) {
			return nil
		}
		if err != nil {
			return err
		}
		f.stream.ahead, f.stream.full = 1, false
		f.found(newest{base: base, number: number, checked: checked})
	}
	end, woken := time.Now().Add(pause), false
	for ctx.Err() == nil {
		found, err := f.readNext(ctx)
		if err != nil {
			return err
		}
		f.followed(nil)
		if found {
			woken = false
			if time.Now().After(end) {
				return nil
			}
			continue
		}
		_, known, _ := f.now()
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

// readNext reads the increments that follow the newest one that is known, and reports whether
// there was one.
func (f *Feed) readNext(ctx context.Context) (found bool, err error) {
	_, known, _ := f.now()
	checked, s := f.options.Now(), &f.stream
	// Followers read other increments meanwhile: those up to the newest one.
	list, end, err := f.readBucket(ctx, known.base, known.number+1, s.ahead)
	if err != nil {
		return false, err
	}
	full := len(list) == s.ahead && !end
	if known.behind = full && s.full; known.behind {
		s.ahead = min(2*s.ahead, publish.MaxAhead)
	}
	if s.full = full; end {
		s.ahead, known.checked = 1, checked
	}
	if len(list) == 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.newest.checked, f.mu.newest.behind = checked, false
		return false, nil
	}
	s.pace.last = time.Now()
	known.number = list[len(list)-1].Number
	f.found(known)
	return true, nil
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

// read returns an increment that is kept, or reads so many of them.
func (f *Feed) read(ctx context.Context, base publish.Ref, from uint64, most int) (list []publish.StoredIncrement, end bool, err error) {
	s := &f.stream
	if i, found := s.find(base, from, false); found {
		return []publish.StoredIncrement{i}, false, nil
	}
	if err := s.reading.take(ctx); err != nil {
		return nil, false, err
	}
	defer s.reading.end()
	if i, found := s.find(base, from, false); found { // it was read meanwhile
		return []publish.StoredIncrement{i}, false, nil
	}
	return f.readBucket(ctx, base, from, most)
}

// readBucket reads increments and keeps them.
func (f *Feed) readBucket(ctx context.Context, base publish.Ref, from uint64, most int) (list []publish.StoredIncrement, end bool, err error) {
	m, err := f.readManifest(ctx, base)
	if err != nil {
		return nil, false, err
	}
	list, end, err = publish.NewIncrementReader(f.bucket, m).ReadIncrements(ctx, base, from, most)
	f.stream.keep(base, list)
	return list, end, err
}

// keep keeps increments, and drops the oldest ones.
func (s *stream) keep(base publish.Ref, list []publish.StoredIncrement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range list {
		s.mu.kept = append(s.mu.kept, keptIncrement{base, i})
		s.mu.keptBytes += i.Bytes()
	}
	drop := 0
	for left := len(s.mu.kept); left > maxKeptIncrements || left > 1 && s.mu.keptBytes > maxKeptIncrementBytes; left-- {
		s.mu.keptBytes -= s.mu.kept[drop].Bytes()
		drop++
	}
	s.mu.kept = slices.Delete(s.mu.kept, 0, drop)
}

// readHeader reads the header of an increment.
func (f *Feed) readHeader(ctx context.Context, base publish.Ref, number uint64) (publish.StoredIncrement, error) {
	s := &f.stream
	reading := s.headers[number%headerTurns]
	if err := reading.take(ctx); err != nil {
		return publish.StoredIncrement{}, err
	}
	defer reading.end()
	if i, found := s.find(base, number, true); found {
		return i, nil
	}
	m, err := f.readManifest(ctx, base)
	if err != nil {
		return publish.StoredIncrement{}, err
	}
	i, err := publish.NewIncrementReader(f.bucket, m).ReadHeader(ctx, base, number)
	if err != nil {
		return publish.StoredIncrement{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.headers) == maxKeptHeaders {
		s.mu.headers = slices.Delete(s.mu.headers, 0, 1)
	}
	s.mu.headers = append(s.mu.headers, keptIncrement{base, i})
	return i, nil
}

// find returns an increment that is kept. header: the header is enough.
func (s *stream) find(base publish.Ref, number uint64, header bool) (publish.StoredIncrement, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := func(k keptIncrement) bool { return k.base == base && k.Number == number }
	if i := slices.IndexFunc(s.mu.kept, is); i >= 0 {
		return s.mu.kept[i].StoredIncrement, true
	}
	if i := slices.IndexFunc(s.mu.headers, is); header && i >= 0 {
		return s.mu.headers[i].StoredIncrement, true
	}
	return publish.StoredIncrement{}, false
}

// feedIncrements reads increments for the Followers of a Feed. It asks the bucket only for
// those that exist.
type feedIncrements struct{ feed *Feed }

// ReadIncrements implements publish.IncrementReader. It returns one increment: the Feed keeps
// those that it has read with it, so that the Followers of all shards hold few.
func (r feedIncrements) ReadIncrements(ctx context.Context, base publish.Ref, from uint64, most int) (list []publish.StoredIncrement, end bool, err error) {
	if _, newest, _ := r.feed.now(); newest.base == base {
		if from > newest.number {
			return nil, true, nil
		}
		most = int(min(newest.number-from+1, publish.MaxAhead))
	}
	list, end, err = r.feed.read(ctx, base, from, most)
	if len(list) > 0 {
		list, end = list[:1], false
	}
	return list, end, err
}

// ReadHeader implements publish.IncrementReader.
func (r feedIncrements) ReadHeader(ctx context.Context, base publish.Ref, number uint64) (publish.StoredIncrement, error) {
	if _, newest, _ := r.feed.now(); newest.base == base && number > newest.number {
		return publish.StoredIncrement{}, bucket.ErrNotExist
	}
	return r.feed.readHeader(ctx, base, number)
}
