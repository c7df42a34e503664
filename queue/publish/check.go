package publish

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// Checked is the result of Check.
type Checked struct {
	Commits   uint64
	Manifests int
	Files     int   // undamaged
	Bytes     int64 // of these files
	// Problems match ErrCorrupt. None: everything can be restored.
	Problems []error
}

// Check reads every object that the commits of a bucket reach: all commits, the manifests
// that were not collected, and their files. Commits must have no gap, each must hold the
// digest of the one before, and no two may name different manifests of one number. The
// digests of manifests and files must be those that refer to them.
func Check(ctx context.Context, b bucket.Bucket) (Checked, error) {
	var c Checked
	record, err := c.commits(ctx, b)
	if err != nil {
		return c, err
	}
	files := map[string]File{}
	for m, err := range Manifests(ctx, b, record) {
		if err != nil {
			// The manifest names those before it: the walk ends here.
			return c, c.problem(err, "manifests")
		}
		c.Manifests++
		for _, f := range m.Files {
			files[f.object()] = f
		}
	}
	for name, f := range files {
		err := checkFile(ctx, b, f)
		if err == nil {
			c.Files++
			c.Bytes += f.Size
		} else if err := c.problem(err, name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// problem adds an error that means damage, and returns any other.
func (c *Checked) problem(err error, object string) error {
	switch {
	case errors.Is(err, bucket.ErrNotExist):
		c.Problems = append(c.Problems, corrupt("%s: %v", object, err))
	case errors.Is(err, ErrCorrupt):
		c.Problems = append(c.Problems, err)
	default:
		return err
	}
	return nil
}

// commits reads all commits and returns the newest record.
func (c *Checked) commits(ctx context.Context, b bucket.Bucket) (Record, error) {
	log := &Log{bucket: b, now: time.Now}
	digests := map[uint64]Digest{} // of manifests, by number
	for {
		before := log.mu.commit
		next, digest, err := log.read(ctx, before.Number+1)
		if errors.Is(err, bucket.ErrNotExist) {
			break
		}
		if errors.Is(err, ErrCorrupt) {
			c.Problems = append(c.Problems, err)
			return before.Record, nil
		}
		if err != nil {
			return Record{}, err
		}
		if next.Previous != log.mu.digest {
			c.Problems = append(c.Problems, corrupt("%s does not follow the commit before it", commitObject(next.Number)))
		}
		if next.Record.Epoch < before.Record.Epoch {
			c.Problems = append(c.Problems, corrupt("%s has epoch %d after epoch %d", commitObject(next.Number), next.Record.Epoch, before.Record.Epoch))
		}
		for _, ref := range next.Record.references() {
			if known, found := digests[ref.Number]; found && known != ref.Digest {
				c.Problems = append(c.Problems, corrupt("%s names another manifest %d than a commit before it", commitObject(next.Number), ref.Number))
			}
			digests[ref.Number] = ref.Digest
		}
		log.mu.commit, log.mu.digest = *next, digest
		c.Commits++
	}
	// A gap would hide the commits after it.
	newest, err := newestCommit(ctx, b)
	if err == nil && newest != c.Commits {
		c.Problems = append(c.Problems, corrupt("%s is missing, and there is %s", commitObject(c.Commits+1), commitObject(newest)))
	}
	return log.mu.commit.Record, err
}

// newestCommit returns the largest number of a commit, 0 if there is none.
func newestCommit(ctx context.Context, b bucket.Bucket) (newest uint64, err error) {
	for info, err := range b.List(ctx, commitPrefix, "") {
		if err != nil {
			return 0, err
		}
		var number uint64
		if _, err := fmt.Sscanf(info.Name, commitPrefix+"%d", &number); err == nil {
			newest = max(newest, number)
		}
	}
	return newest, nil
}

// references returns the manifests that a record names.
func (r Record) references() []Ref {
	refs := r.keptBefore(r.Head.Number)
	if r.Head.Number > 0 {
		refs = append(refs, r.Head)
	}
	return refs
}

// checkFile compares a file's object with its digest.
func checkFile(ctx context.Context, b bucket.Bucket, f File) error {
	body, err := b.Get(ctx, f.object(), 0, -1)
	if err != nil {
		return err
	}
	defer body.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, body)
	if err != nil {
		return err
	}
	if n != f.Size || Digest(hash.Sum(nil)) != f.Digest {
		return corrupt("%s (%s) has %d bytes with the digest %x, want %d bytes", f.object(), f.Name, n, hash.Sum(nil), f.Size)
	}
	return nil
}
