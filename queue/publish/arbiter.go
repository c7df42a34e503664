package publish

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// Arbiter orders the commits of collections outside their buckets: package etcdlog with
// etcd. Each commit replaces the value of a key, by compare-and-swap, and is then copied to
// the bucket before the next one. It is safe for concurrent use.
type Arbiter interface {
	// Get returns the value of a key and its version; version 0: there is no value.
	Get(ctx context.Context, key string) (value []byte, version int64, err error)
	// Swap sets the value of a key if its version is the given one and, unless fence is 0,
	// the claim on the key has this fence. After an error the outcome is unknown.
	Swap(ctx context.Context, key string, version int64, value []byte, fence int64) (swapped bool, err error)
	// Remove removes the value of a key.
	Remove(ctx context.Context, key string) error
	// Claim makes the caller the holder of a key until release, or until it fails to renew
	// the claim for the time of a lease. fence identifies the claim. If there is another
	// holder, Claim waits at most patience for its claim to end, and returns ErrRefused.
	Claim(ctx context.Context, key string, patience time.Duration) (fence int64, release func(), err error)
	// Notify ends the Wait calls for a key that have a smaller number. It makes one attempt.
	Notify(ctx context.Context, key string, number uint64) error
	// Wait returns the number of a Notify that is above after.
	Wait(ctx context.Context, key string, after uint64) (number uint64, err error)
}

// Coordinated is a Bucket with an Arbiter, nil for none. The functions of this package
// recognize it.
type Coordinated interface {
	bucket.Bucket
	Arbiter() Arbiter
}

// coordinated implements Coordinated.
type coordinated struct {
	bucket.Bucket
	arbiter Arbiter
}

func (c coordinated) Arbiter() Arbiter { return c.arbiter }

// WithArbiter returns a bucket whose commits are made in an Arbiter.
func WithArbiter(b bucket.Bucket, a Arbiter) Coordinated { return coordinated{b, a} }

func arbiterOf(b bucket.Bucket) Arbiter {
	if c, ok := b.(Coordinated); ok {
		return c.Arbiter()
	}
	return nil
}

// claimPatience is how long a publisher waits for the claim of another one to end: longer
// than the lease of a publisher that was killed.
const claimPatience = 15 * time.Second

// claim is the right of a publisher to commit, in an Arbiter.
type claim struct {
	fence   int64
	release func()
}

// agree returns the version of the arbiter's commit, after copying that commit to the
// bucket if it is not there yet. l.mu is held and the newest commit of the bucket is loaded.
func (l *Log) agree(ctx context.Context) (version int64, err error) {
	for {
		newest := l.mu.commit
		switch incarnation := newest.Record.Incarnation; {
		case l.arbiter == nil && incarnation == "", newest.Number == 0:
			return 0, nil
		case l.arbiter == nil:
			return 0, refused("the commits of this collection are made in etcd: give --etcd")
		case incarnation == "":
			return 0, refused("the commits of this collection are made in the bucket: leave out --etcd, or run docstore-updater restore --bucket URL --etcd ENDPOINTS, which moves them to etcd")
		}
		c, data, version, err := l.arbitrated(ctx)
		if err != nil {
			return 0, err
		}
		switch {
		case version == 0:
			return 0, refused("etcd does not hold this collection: check the endpoints and the prefix; if etcd has lost its data, run docstore-updater restore --bucket URL --etcd ENDPOINTS")
		case c.Number == newest.Number && c.Nonce == newest.Nonce:
			return version, nil
		case c.Number <= newest.Number:
			return 0, refused("etcd holds commit %d of this collection and the bucket another commit %d: etcd was restored from an older copy, or another etcd was used; run docstore-updater restore --bucket URL --etcd ENDPOINTS, which continues from the bucket", c.Number, newest.Number)
		case c.Number == newest.Number+1 && c.Previous == l.mu.digest:
			if err := l.mirror(ctx, c, data); err != nil {
				return 0, err
			}
			return version, nil
		}
		// Others have committed since the bucket was read.
		if _, err := l.load(ctx); err != nil {
			return 0, err
		}
		if l.mu.commit.Number == newest.Number {
			return 0, corrupt("etcd holds commit %d, and the bucket lacks commit %d", c.Number, newest.Number+1)
		}
	}
}

// arbitrated returns the arbiter's commit, its object, and its version; version 0: none.
func (l *Log) arbitrated(ctx context.Context) (*commit, []byte, int64, error) {
	data, version, err := l.arbiter.Get(ctx, l.mu.commit.Record.Incarnation)
	if err != nil || version == 0 {
		return nil, nil, 0, err
	}
	c, err := decodeCommit("the value in etcd", data)
	return c, data, version, err
}

// mirror copies a commit of the arbiter to the bucket and wakes the servers.
func (l *Log) mirror(ctx context.Context, c *commit, data []byte) error {
	won, err := l.put(ctx, c, data)
	if err != nil {
		return err
	}
	if !won {
		return refused("etcd and the bucket hold different commits %d: another etcd was used for this collection", c.Number)
	}
	l.notify(ctx, 0)
	return nil
}

// notifyPause is the pause after a failed Notify, so that publishing does not wait for an
// arbiter that is away.
const notifyPause = 10 * time.Second

// notify wakes servers after a commit, or an increment of its manifest. A server that is not
// woken reads the bucket later.
func (l *Log) notify(ctx context.Context, increment uint64) {
	if now := l.now(); now.After(l.mu.notifyAfter) {
		if l.arbiter.Notify(ctx, l.mu.commit.Record.Incarnation, newsNumber(l.mu.commit.Number, increment)) != nil {
			l.mu.notifyAfter = now.Add(notifyPause)
		}
	}
}

// notifyIncrement wakes servers after an increment of the newest manifest.
func (l *Log) notifyIncrement(ctx context.Context, increment uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arbiter != nil {
		l.notify(ctx, increment)
	}
}

// incrementBits is the part of a number of Notify that numbers increments; the rest is that
// of the commit.
const incrementBits = 20

func newsNumber(commit, increment uint64) uint64 {
	return commit<<incrementBits | min(increment, 1<<incrementBits-1)
}

// swap makes c the arbiter's commit, and reports whether it is.
func (l *Log) swap(ctx context.Context, c *commit, data []byte, version int64) (bool, error) {
	fence := int64(0)
	if l.mu.claim != nil {
		fence = l.mu.claim.fence
	}
	swapped, err := l.arbiter.Swap(ctx, c.Record.Incarnation, version, data, fence)
	if err != nil || swapped {
		return swapped, err
	}
	// It may have been swapped by an attempt whose response was lost.
	there, _, present, err := l.arbitrated(ctx)
	if err != nil || present == 0 {
		return false, err
	}
	if there.Number > c.Number {
		// Only then: the bucket holds c.Number before the arbiter holds the next.
		if there, _, err = l.read(ctx, c.Number); err != nil {
			return false, err
		}
	}
	if there.Number == c.Number {
		return there.Nonce == c.Nonce, nil
	}
	if fence == 0 {
		return false, nil
	}
	// The claim has ended. If there was no other publisher since, the record still names
	// this one, and it continues.
	l.mu.claim.release()
	l.mu.claim = nil
	if err := l.acquire(ctx, 0); errors.Is(err, ErrRefused) {
		return false, errors.Wrapf(ErrFenced, "%v", err)
	} else if err != nil {
		return false, err
	}
	return false, nil
}

// establish commits a record with a new incarnation: to the arbiter, under a key that is not
// known to others, then to the bucket, whose create-only put decides between concurrent
// attempts. It reports whether this one succeeded.
func (l *Log) establish(ctx context.Context, record Record) (bool, error) {
	record.Format, record.Incarnation = recordFormat, rand.Text()
	c, data, err := l.next(record)
	if err != nil {
		return false, err
	}
	// If the response is lost, the next attempt does not swap: the key is there.
	if _, err := l.arbiter.Swap(ctx, record.Incarnation, 0, data, 0); err != nil {
		return false, err
	}
	won, err := l.put(ctx, c, data)
	if err == nil && !won {
		err = l.arbiter.Remove(ctx, record.Incarnation)
	}
	return won, err
}

// Claim makes the caller the only one whose changes are committed, until Release. Without an
// Arbiter it does nothing.
func (l *Log) Claim(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arbiter == nil {
		return nil
	}
	for {
		record, err := l.load(ctx)
		if err != nil {
			return err
		}
		if l.mu.commit.Number == 0 {
			if _, err := l.establish(ctx, record); err != nil {
				return err
			}
			continue
		}
		if _, err := l.agree(ctx); err != nil {
			return err
		}
		return l.acquire(ctx, claimPatience)
	}
}

func (l *Log) acquire(ctx context.Context, patience time.Duration) error {
	fence, release, err := l.arbiter.Claim(ctx, l.mu.commit.Record.Incarnation, patience)
	if err == nil {
		l.mu.claim = &claim{fence, release}
	}
	return err
}

// Release ends Claim.
func (l *Log) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.claim != nil {
		l.mu.claim.release()
		l.mu.claim = nil
	}
}

// Restore makes the bucket's newest record the arbiter's, after the arbiter has lost it, or
// when the commits were made in the bucket until now. The record gets a new incarnation and
// the next epoch, so that publishers have to take over again. ErrRefused: the arbiter holds
// the record.
func (l *Log) Restore(ctx context.Context) (Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		record, err := l.load(ctx)
		if err != nil {
			return Record{}, err
		}
		if l.mu.commit.Number == 0 {
			return Record{}, refused("the bucket holds no collection: check the URL")
		}
		if record.Incarnation != "" {
			c, _, version, err := l.arbitrated(ctx)
			if err != nil {
				return Record{}, err
			}
			if version != 0 && (c.Number > l.mu.commit.Number || c.Nonce == l.mu.commit.Nonce) {
				return Record{}, refused("etcd holds commit %d of this collection, and the bucket %d: nothing is lost", c.Number, l.mu.commit.Number)
			}
		}
		record = record.clone()
		record.Epoch++
		record.Owner = ""
		won, err := l.establish(ctx, record)
		if err != nil || won {
			return l.mu.commit.Record, err
		}
	}
}

// Watches reports whether Wait is woken by an Arbiter.
func (l *Log) Watches() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arbiter != nil && l.mu.commit.Record.Incarnation != ""
}

// Wait returns true when there is a commit after the one that Load returned last, and false
// when there is an increment of its newest manifest after the given one. Without an Arbiter,
// or while it is away, it returns true after pause, otherwise after limit at the latest.
func (l *Log) Wait(ctx context.Context, increment uint64, pause, limit time.Duration) bool {
	if l.Watches() {
		l.mu.Lock()
		incarnation, number := l.mu.commit.Record.Incarnation, l.mu.commit.Number
		l.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		news, err := l.arbiter.Wait(limited, incarnation, newsNumber(number, increment))
		if err == nil {
			return news>>incrementBits > number
		}
		if limited.Err() != nil {
			return true
		}
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}

// next returns the commit that follows the newest one, and its object.
func (l *Log) next(record Record) (*commit, []byte, error) {
	c := &commit{
		Format: recordFormat, Number: l.mu.commit.Number + 1, Previous: l.mu.digest,
		Nonce: rand.Text(), Time: l.now().UTC().Round(0), Record: record,
	}
	data, err := json.Marshal(c)
	if err == nil && len(data) > maxCommitBytes {
		err = refused("the state of the collection has %d bytes, more than %d: unpin groups or release retained manifests", len(data), maxCommitBytes)
	}
	return c, data, err
}
