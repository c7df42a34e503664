package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// directory is a Store of the files below a directory; their names are absolute paths.
type directory struct {
	root    string
	pattern pattern
}

// NewDirectory returns the files that an absolute path with "*" and "**" selects.
func NewDirectory(path string) (Store, error) {
	p, err := parsePattern(path)
	if err != nil {
		return nil, err
	}
	root := p.prefix[:strings.LastIndexByte(p.prefix, '/')+1]
	info, err := os.Stat(root)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", root)
	}
	return &directory{root, p}, err
}

func (d *directory) List(ctx context.Context, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		found, err := d.list(ctx, after)
		if err != nil {
			yield(Object{}, err)
			return
		}
		for _, object := range found {
			if !yield(object, nil) {
				return
			}
		}
	}
}

func (d *directory) list(ctx context.Context, after string) (found []Object, err error) {
	err = filepath.WalkDir(d.root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !entry.Type().IsRegular() || path <= after || !d.pattern.selects(path) {
			return ignoreMissing(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		found = append(found, Object{path, info.Size(), info.ModTime()})
		return nil
	})
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// ignoreMissing ignores that a file was removed during the walk.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d *directory) Open(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if length < 0 {
		info, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return &openFileOfSize{file, info.Size() - offset}, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(file, length), file}, nil
}

// openFileOfSize is a file with the number of bytes that followed when it was opened.
type openFileOfSize struct {
	*os.File
	remaining int64
}

func (f *openFileOfSize) Remaining() int64 { return f.remaining }

func (d *directory) Size(_ context.Context, name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (d *directory) Describe(name string) string { return name }

func (d *directory) PollInterval() time.Duration { return time.Second }

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
