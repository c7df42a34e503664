package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// maxCommitBytes bounds the object of a commit.
const maxCommitBytes = 64 << 10

// Log is the history of a collection's Record in a bucket. Version n of the record is the
// object commit/n. It is created by a create-only put, which is the compare-and-swap: of
// concurrent writers one succeeds. Commits are numbered from 1 without gaps, hold the
// digest of the previous commit, and are never deleted, so that no number is used twice.
// Each manifest and each opened Publisher adds a commit of about 1 KB.
//
// With an Arbiter the compare-and-swap is the Arbiter's. A commit is then copied to the
// bucket, before Update returns and before the next commit. Load reads the bucket only, so
// that a server never serves what a restore from the bucket would not have.
//
// A Log is safe for concurrent use.
type Log struct {
	bucket  bucket.Bucket
	arbiter Arbiter // nil: commits are made in the bucket
	now     func() time.Time

	mu struct {
		sync.Mutex
		commit commit // the newest that is known; number 0: none
		digest Digest // of its object
		claim  *claim // nil: none, or the arbiter is nil

		notifyAfter time.Time // the arbiter did not answer until then
	}
}

// commit is an object of the log.
type commit struct {
	Format   int       `json:"format"`
	Number   uint64    `json:"number"`
	Previous Digest    `json:"previous"` // of the object of the commit before
	Nonce    string    `json:"nonce"`    // random: identifies the writer after a lost response
	Time     time.Time `json:"time"`
	Record   Record    `json:"record"`
}

const commitPrefix = "commit/"

func commitObject(number uint64) string { return fmt.Sprintf("%s%012d", commitPrefix, number) }

// OpenLog opens the log of a bucket. An empty bucket has an empty record.
func OpenLog(ctx context.Context, b bucket.Bucket, now func() time.Time) (*Log, error) {
	l := &Log{bucket: b, arbiter: arbiterOf(b), now: now}
	newest, err := newestObject(ctx, l.bucket, commitObject)
	if err != nil || newest == 0 {
		return l, err
	}
	c, digest, err := l.read(ctx, newest)
	if err != nil {
		return nil, err
	}
	l.mu.commit, l.mu.digest = *c, digest
	return l, nil
}

// read returns a commit and the digest of its object.
func (l *Log) read(ctx context.Context, number uint64) (*commit, Digest, error) {
	data, err := bucket.ReadAll(ctx, l.bucket, commitObject(number), maxCommitBytes)
	if err != nil {
		return nil, Digest{}, err
	}
	c, err := decodeCommit(commitObject(number), data)
	if err == nil && c.Number != number {
		err = corrupt("%s holds commit %d", commitObject(number), c.Number)
	}
	if err != nil {
		return nil, Digest{}, err
	}
	return c, sha256.Sum256(data), nil
}

// decodeCommit parses the object of a commit; where is its place.
func decodeCommit(where string, data []byte) (*commit, error) {
	c := new(commit)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, corrupt("%s: %v", where, err)
	}
	switch {
	case c.Format > recordFormat || c.Record.Format > recordFormat:
		return nil, errors.Wrapf(ErrNewerVersion, "%s", where)
	case c.Format < 1 || c.Number == 0:
		return nil, corrupt("%s holds commit %d of format %d", where, c.Number, c.Format)
	}
	return c, nil
}

// Load reads the commits that are new and returns the newest record.
func (l *Log) Load(ctx context.Context) (Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.load(ctx)
}

func (l *Log) load(ctx context.Context) (Record, error) {
	for {
		c, digest, err := l.read(ctx, l.mu.commit.Number+1)
		if errors.Is(err, bucket.ErrNotExist) {
			return l.mu.commit.Record, nil
		}
		if err != nil {
			return Record{}, err
		}
		if c.Previous != l.mu.digest {
			return Record{}, corrupt("%s does not follow the commit before it: it names %s, and that one has %s", commitObject(c.Number), c.Previous, l.mu.digest)
		}
		l.mu.commit, l.mu.digest = *c, digest
	}
}

// Update applies a change to the newest record and commits the result. If another commit
// comes first, the change is applied to that one, so change may be called several times.
// An error of change is returned, and nothing is committed.
func (l *Log) Update(ctx context.Context, change func(Record) (Record, error)) (Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if _, err := l.load(ctx); err != nil {
			return Record{}, err
		}
		version, err := l.agree(ctx)
		if err != nil {
			return Record{}, err
		}
		record, err := change(l.mu.commit.Record)
		if err != nil {
			return Record{}, err
		}
		won, err := l.commit(ctx, record, version)
		if err != nil {
			return Record{}, err
		}
		if won {
			return l.mu.commit.Record, nil
		}
	}
}

// commit commits a record that follows the newest one, and reports whether it did. version
// is that of the newest one in the arbiter.
func (l *Log) commit(ctx context.Context, record Record, version int64) (bool, error) {
	if l.arbiter != nil && l.mu.commit.Number == 0 {
		return l.establish(ctx, record)
	}
	record.Incarnation = l.mu.commit.Record.Incarnation
	c, data, err := l.next(record)
	if err != nil {
		return false, err
	}
	if l.arbiter == nil {
		return l.put(ctx, c, data)
	}
	swapped, err := l.swap(ctx, c, data, version)
	if err != nil || !swapped {
		return false, err
	}
	return true, l.mirror(ctx, c, data)
}

// put creates the object of a commit, and reports whether it is this commit's.
func (l *Log) put(ctx context.Context, c *commit, data []byte) (bool, error) {
	err := l.bucket.Put(ctx, commitObject(c.Number), bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, bucket.ErrExist) {
		// It may be this commit, created by an attempt whose response was lost.
		there, _, err := l.read(ctx, c.Number)
		if err != nil || there.Nonce != c.Nonce {
			return false, err
		}
	} else if err != nil {
		return false, err
	}
	l.mu.commit, l.mu.digest = *c, sha256.Sum256(data)
	return true, nil
}
