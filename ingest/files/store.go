package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"regexp"
	"strings"
	"time"

	"docstore/queue/bucket"
)

// pattern selects objects by their names.
type pattern struct {
	prefix string // of all names
	regexp *regexp.Regexp
}

// parsePattern parses a pattern: "*" is any text without a slash, "**" any text. A pattern that
// ends with a slash, or is empty, selects everything below.
func parsePattern(text string) (pattern, error) {
	if text == "" || strings.HasSuffix(text, "/") {
		text += "**"
	}
	var expression strings.Builder
	expression.WriteString("^")
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			expression.WriteString("(?:.*/)?")
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			expression.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			expression.WriteString("[^/]*")
			rest = rest[1:]
		default:
			n := strings.IndexByte(rest, '*')
			if n < 0 {
				n = len(rest)
			}
			expression.WriteString(regexp.QuoteMeta(rest[:n]))
			rest = rest[n:]
		}
	}
	compiled, err := regexp.Compile("(?s)" + expression.String() + "$")
	if err != nil {
		return pattern{}, fmt.Errorf("the pattern %s: %w", text, err)
	}
	prefix, _, _ := strings.Cut(text, "*")
	return pattern{prefix, compiled}, nil
}

// selects reports whether an object is selected. Names with a part that begins with a dot are
// not: programs give them to files that are not complete.
func (p *pattern) selects(name string) bool {
	root := strings.LastIndexByte(p.prefix, '/') + 1
	return p.regexp.MatchString(name) && !strings.Contains("/"+name[root:], "/.")
}

// pageObjects are the objects of a page of S3.
const pageObjects = 1000

// bucketStore is a Store of the objects of a bucket.
type bucketStore struct {
	client  bucket.Bucket
	url     string // of the bucket, with a slash at the end
	pattern pattern
}

// NewBucket returns the objects of a bucket that a pattern selects. The client must accept
// foreign names.
func NewBucket(client bucket.Bucket, url, selection string) (Store, error) {
	p, err := parsePattern(selection)
	return &bucketStore{client, strings.TrimSuffix(url, "/") + "/", p}, err
}

func (b *bucketStore) List(ctx context.Context, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for info, err := range b.client.List(ctx, b.pattern.prefix, after) {
			if err != nil {
				yield(Object{}, err)
				return
			}
			if b.pattern.selects(info.Name) && !yield(Object(info), nil) {
				return
			}
		}
	}
}

func (b *bucketStore) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := b.client.Get(ctx, name, offset, length)
	return r, missing(err)
}

func (b *bucketStore) Size(ctx context.Context, name string) (int64, error) {
	info, err := b.client.Head(ctx, name)
	return info.Size, missing(err)
}

// missing makes the error of a missing object match fs.ErrNotExist.
func missing(err error) error {
	if errors.Is(err, bucket.ErrNotExist) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func (b *bucketStore) Describe(name string) string { return b.url + name }

func (b *bucketStore) PollInterval() time.Duration { return 10 * time.Second }

func (b *bucketStore) PageObjects() int { return pageObjects }
