package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/errors"
)

const (
	// checkWriters writers create one object at the same time, in each of checkRounds rounds. Two
	// rounds find a store that examines and creates with 10 us in between.
	checkWriters = 16
	checkRounds  = 10
	// checkObjectBytes is the size of the object whose ranges are read: larger than one
	// segment of a TCP connection.
	checkObjectBytes = 300_000
	// checkListed is how many objects are listed.
	checkListed = 12
	// cleanUpTimeout bounds the removal of the check's objects.
	cleanUpTimeout = 30 * time.Second
)

// Finding is the result of one part of Check.
type Finding struct {
	Property string // of a correct store
	Err      error  // how the store deviates; nil if it does not
}

// Check tests the properties of a store that package publish relies on: it creates,
// reads, lists and deletes objects below check/, and removes them at the end. It sends
// about 250 requests. Check returns an error only if the store cannot be used, for
// example with wrong credentials; deviations are in the findings.
func Check(ctx context.Context, b Bucket) ([]Finding, error) {
	c := newChecker(b)
	if err := c.put(ctx, "first", []byte("first")); err != nil {
		return nil, err
	}
	defer c.cleanUp(context.WithoutCancel(ctx))
	var findings []Finding
	for _, part := range []struct {
		property string
		check    func(context.Context) error
	}{
		{"an object is read as it was put", c.checkRead},
		{"a range is read exactly", c.checkRanges},
		{"an empty object is stored", c.checkEmpty},
		{"an absent object is reported as absent", c.checkAbsent},
		{"a put never replaces an object", c.checkNoReplace},
		{fmt.Sprintf("of %d concurrent puts exactly one creates the object, in %d rounds", checkWriters, checkRounds), c.checkContention},
		{"a list is complete, ordered and current", c.checkList},
		{"a deleted object is absent and can be put again", c.checkDelete},
	} {
		err := part.check(ctx)
		if ctx.Err() != nil {
			return findings, ctx.Err()
		}
		findings = append(findings, Finding{part.property, err})
	}
	return findings, nil
}

// Deviations joins the errors of the findings; nil means that the store is correct.
func Deviations(findings []Finding) error {
	var err error
	for _, f := range findings {
		if f.Err != nil {
			err = errors.CombineErrors(err, errors.Wrapf(f.Err, "bucket: the store violates %q", f.Property))
		}
	}
	return err
}

// checker is a run of Check.
type checker struct {
	bucket Bucket
	prefix string
	mu     sync.Mutex
	made   []string
}

func newChecker(b Bucket) *checker {
	return &checker{bucket: b, prefix: "check/" + strings.ToLower(rand.Text()[:16]) + "/"}
}

func (c *checker) put(ctx context.Context, name string, content []byte) error {
	name = c.prefix + name
	c.mu.Lock()
	c.made = append(c.made, name)
	c.mu.Unlock()
	return c.bucket.Put(ctx, name, bytes.NewReader(content), int64(len(content)))
}

// want returns an error unless a range of an object is what it should be.
func (c *checker) want(ctx context.Context, name string, offset, length int64, want []byte) error {
	r, err := c.bucket.Get(ctx, c.prefix+name, offset, length)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.Newf("%d bytes from offset %d of an object: read %d bytes that differ from the %d bytes put", length, offset, len(got), len(want))
	}
	return nil
}

func (c *checker) checkRead(ctx context.Context) error {
	info, err := c.bucket.Head(ctx, c.prefix+"first")
	if err != nil {
		return err
	}
	if info.Size != int64(len("first")) {
		return errors.Newf("head reports %d bytes for an object of %d", info.Size, len("first"))
	}
	return c.want(ctx, "first", 0, -1, []byte("first"))
}

func (c *checker) checkRanges(ctx context.Context) error {
	content := make([]byte, checkObjectBytes)
	_, _ = rand.Read(content) // it never fails
	if err := c.put(ctx, "large", content); err != nil {
		return err
	}
	for _, r := range []struct{ offset, length int64 }{
		{0, 1}, {1, 1}, {checkObjectBytes - 1, 1}, {70_000, 100_000}, {checkObjectBytes - 10, 100},
		{5, 0}, {checkObjectBytes, 10}, {checkObjectBytes / 2, -1}, {0, -1},
	} {
		end := int64(checkObjectBytes)
		if r.length >= 0 {
			end = min(end, r.offset+r.length)
		}
		if err := c.want(ctx, "large", r.offset, r.length, content[r.offset:end]); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) checkEmpty(ctx context.Context) error {
	if err := c.put(ctx, "empty", nil); err != nil {
		return err
	}
	return c.want(ctx, "empty", 0, -1, nil)
}

func (c *checker) checkAbsent(ctx context.Context) error {
	name := c.prefix + "absent"
	if _, err := c.bucket.Head(ctx, name); !errors.Is(err, ErrNotExist) {
		return errors.Newf("head of an absent object: %v", err)
	}
	r, err := c.bucket.Get(ctx, name, 0, -1)
	if err == nil {
		_ = r.Close()
	}
	if !errors.Is(err, ErrNotExist) {
		return errors.Newf("get of an absent object: %v", err)
	}
	if err := c.bucket.Delete(ctx, name); err != nil {
		return errors.Wrap(err, "delete of an absent object")
	}
	return nil
}

func (c *checker) checkNoReplace(ctx context.Context) error {
	err := c.put(ctx, "first", []byte("second"))
	if !errors.Is(err, ErrExist) {
		return errors.Newf("a put of a name that exists: %v; the store ignores or misunderstands If-None-Match", err)
	}
	return c.want(ctx, "first", 0, -1, []byte("first"))
}

// checkContention lets writers race for one name. The object tells the winner: an attempt
// whose response was lost may have won and returned ErrExist when it was repeated.
func (c *checker) checkContention(ctx context.Context) error {
	for round := range checkRounds {
		name := fmt.Sprintf("race-%03d", round)
		results := make([]error, checkWriters)
		start := make(chan struct{})
		var writers sync.WaitGroup
		for w := range checkWriters {
			writers.Go(func() {
				<-start
				results[w] = c.put(ctx, name, []byte(fmt.Sprintf("writer %02d", w)))
			})
		}
		close(start)
		writers.Wait()
		if err := c.judgeRace(ctx, name, results); err != nil {
			return errors.Wrapf(err, "round %d", round+1)
		}
	}
	return nil
}

// judgeRace checks the outcome of concurrent puts.
func (c *checker) judgeRace(ctx context.Context, name string, results []error) error {
	stored, err := ReadAll(ctx, c.bucket, c.prefix+name, 100)
	if err != nil {
		return err
	}
	succeeded := 0
	for w, err := range results {
		switch {
		case err == nil:
			succeeded++
			if own := fmt.Sprintf("writer %02d", w); own != string(stored) {
				return errors.Newf("the put of %q succeeded, but the object is %q: create-if-absent is not atomic", own, stored)
			}
		case !errors.Is(err, ErrExist):
			return err
		}
	}
	if succeeded > 1 {
		return errors.Newf("%d of %d puts succeeded: create-if-absent is not atomic", succeeded, len(results))
	}
	return nil
}

func (c *checker) checkList(ctx context.Context) error {
	var want []string
	for i := range checkListed {
		name := fmt.Sprintf("list/%c/%02d", 'a'+i%2, i/2)
		want = append(want, c.prefix+name)
		if err := c.put(ctx, name, []byte(name)); err != nil {
			return err
		}
	}
	slices.Sort(want)
	for _, after := range []int{-1, 0, checkListed / 2, checkListed - 1} {
		from := ""
		if after >= 0 {
			from = want[after]
		}
		var got []string
		for info, err := range c.bucket.List(ctx, c.prefix+"list/", from) {
			if err != nil {
				return err
			}
			got = append(got, info.Name)
		}
		if strings.Join(got, " ") != strings.Join(want[after+1:], " ") {
			return errors.Newf("a list after %q has %d objects, want %d: %v", from, len(got), len(want)-after-1, got)
		}
	}
	return nil
}

func (c *checker) checkDelete(ctx context.Context) error {
	for _, content := range []string{"once", "twice"} {
		if err := c.put(ctx, "deleted", []byte(content)); err != nil {
			return err
		}
		if err := c.want(ctx, "deleted", 0, -1, []byte(content)); err != nil {
			return err
		}
		if err := c.bucket.Delete(ctx, c.prefix+"deleted"); err != nil {
			return err
		}
		if _, err := c.bucket.Head(ctx, c.prefix+"deleted"); !errors.Is(err, ErrNotExist) {
			return errors.Newf("head of a deleted object: %v", err)
		}
	}
	return nil
}

// cleanUp removes the objects that the check made.
func (c *checker) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	for _, name := range c.made {
		if c.bucket.Delete(ctx, name) != nil {
			return
		}
	}
}
