package publish

import (
	"bytes"
	"context"
	"crypto/rand"
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
// A Log is safe for concurrent use.
type Log struct {
	bucket bucket.Bucket
	now    func() time.Time

	mu struct {
		sync.Mutex
		commit commit // the newest that is known; number 0: none
		digest Digest // of its object
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

func commitObject(number uint64) string { return fmt.Sprintf("commit/%012d", number) }

// OpenLog opens the log of a bucket. An empty bucket has an empty record.
func OpenLog(ctx context.Context, b bucket.Bucket, now func() time.Time) (*Log, error) {
	l := &Log{bucket: b, now: now}
	newest, err := l.findNewest(ctx)
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

// findNewest returns the number of a commit that was the newest when it was called, 0 if
// there was none. It asks for powers of two, and then halves the range: commits have no
// holes.
func (l *Log) findNewest(ctx context.Context) (uint64, error) {
	exists := func(number uint64) (bool, error) {
		_, err := l.bucket.Head(ctx, commitObject(number))
		if errors.Is(err, bucket.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	low, high := uint64(0), uint64(1) // low exists, or is 0; high is to be tried
	for {
		found, err := exists(high)
		if err != nil {
			return 0, err
		}
		if !found {
			break
		}
		low, high = high, 2*high
	}
	for low+1 < high {
		middle := low + (high-low)/2
		found, err := exists(middle)
		switch {
		case err != nil:
			return 0, err
		case found:
			low = middle
		default:
			high = middle
		}
	}
	return low, nil
}

// read returns a commit and the digest of its object.
func (l *Log) read(ctx context.Context, number uint64) (*commit, Digest, error) {
	data, err := bucket.ReadAll(ctx, l.bucket, commitObject(number), maxCommitBytes)
	if err != nil {
		return nil, Digest{}, err
	}
	c := new(commit)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, Digest{}, corrupt("%s: %v", commitObject(number), err)
	}
	switch {
	case c.Format > recordFormat || c.Record.Format > recordFormat:
		return nil, Digest{}, errors.Wrapf(ErrNewerVersion, "%s", commitObject(number))
	case c.Format < 1 || c.Number != number:
		return nil, Digest{}, corrupt("%s holds commit %d of format %d", commitObject(number), c.Number, c.Format)
	}
	return c, sha256.Sum256(data), nil
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
		record, err := l.load(ctx)
		if err != nil {
			return Record{}, err
		}
		if record, err = change(record); err != nil {
			return Record{}, err
		}
		c := commit{
			Format: recordFormat, Number: l.mu.commit.Number + 1, Previous: l.mu.digest,
			Nonce: rand.Text(), Time: l.now().UTC().Round(0), Record: record,
		}
		won, err := l.put(ctx, &c)
		if err != nil {
			return Record{}, err
		}
		if won {
			return record, nil
		}
	}
}

// put creates the object of a commit, and reports whether it is this commit's.
func (l *Log) put(ctx context.Context, c *commit) (bool, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return false, err
	}
	err = l.bucket.Put(ctx, commitObject(c.Number), bytes.NewReader(data), int64(len(data)))
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
