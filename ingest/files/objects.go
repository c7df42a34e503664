package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"docstore/ingest"
	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
)

// Object is a file in a directory, or an object of a bucket.
type Object struct {
	Name     string
	Size     int64 // bytes
	Modified time.Time
}

// Store has the objects that a source reads.
type Store interface {
	// List iterates over the objects whose names are greater than after, in the order of
	// their names, as bytes. It ends after the first error.
	List(ctx context.Context, after string) iter.Seq2[Object, error]
	// Open returns a reader of length bytes from an offset on; negative: of all. A missing
	// object is fs.ErrNotExist.
	Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// Size returns the size of an object.
	Size(ctx context.Context, name string) (int64, error)
	// Describe returns the name of an object for messages.
	Describe(name string) string
	// PollInterval is the time between two lists with Options.Follow.
	PollInterval() time.Duration
	// PageObjects is the number of objects that are listed at a time.
	PageObjects() int
}

const (
	// recheckInterval is the time between two lists of the objects that were read.
	recheckInterval = 10 * time.Minute
	// maxExamples bounds the objects that a message names.
	maxExamples = 3
)

// ObjectsOpener opens the objects of a store, in the order of their names.
//
// The cursor has the name of an object and the place in it. Objects behind it are new. An object
// that is added or changed before it is not read: the source then ends with ingest.ErrUnread
// instead of io.EOF. With Options.Follow Log receives a warning, when the source is opened and
// every ten minutes.
type ObjectsOpener struct {
	store   Store
	options Options
	log     *slog.Logger
}

// NewObjectsOpener returns an ObjectsOpener. Options.Format must not be Directories.
func NewObjectsOpener(store Store, options Options, log *slog.Logger) *ObjectsOpener {
	return &ObjectsOpener{store, options, log}
}

// Ends implements ingest.Opener.
func (o *ObjectsOpener) Ends() bool { return !o.options.Follow }

// objectPosition is a position in an object.
type objectPosition struct {
	store Store
	at    cursor
}

// String describes the position for messages.
func (p *objectPosition) String() string {
	if p.at.Path == "" {
		return "the start"
	}
	return fmt.Sprintf("%s:%d", p.store.Describe(p.at.Path), p.at.Lines)
}

func (p *objectPosition) includes(_ *input, at *cursor) bool { return compareObjects(at, &p.at) <= 0 }

func compareObjects(a, b *cursor) int {
	return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Lines, b.Lines))
}

// Position implements ingest.Opener.
func (o *ObjectsOpener) Position(stored []byte) (ingest.Position, error) { return o.position(stored) }

func (o *ObjectsOpener) position(stored []byte) (*objectPosition, error) {
	p := &objectPosition{store: o.store}
	if len(stored) == 0 {
		return p, nil
	}
	var err error
	if p.at, err = parseCursor(stored); err != nil {
		return nil, err
	}
	if p.at.Path == "" || !p.at.Object && !p.ofDirectory() {
		return nil, errors.New("the queue's cursor is that of files, not of objects; name the files as before, or use --resume=false")
	}
	return p, nil
}

// ofDirectory reports whether a cursor of files is that of a file which the source would read
// now: its files were arguments before.
func (p *objectPosition) ofDirectory() bool {
	d, ok := p.store.(*directory)
	return ok && !p.at.WholeFile && d.pattern.selects(p.at.Path)
}

// adopt makes a cursor of files one of objects. Files up to it count as read. The file of the
// cursor may have grown: as with --resume FILE, its rest is read.
func (o *objects) adopt(ctx context.Context, at *cursor) error {
	at.Object, at.File = true, vfs.FileID{}
	for object, err := range o.store.List(ctx, "") {
		if err != nil {
			return err
		}
		if object.Name > at.Path {
			break
		}
		at.Seen.add(object)
		if object.Name == at.Path {
			at.File.Inode, at.AtEnd = uint64(object.Size), false
		}
	}
	return nil
}

// Earliest implements ingest.Opener.
func (o *ObjectsOpener) Earliest(cursors [][]byte) (earliest []byte, err error) {
	var first *objectPosition
	for _, c := range cursors {
		p, err := o.position(c)
		if err != nil {
			return nil, err
		}
		if first == nil || compareObjects(&p.at, &first.at) < 0 {
			first, earliest = p, c
		}
	}
	return earliest, nil
}

// Open implements ingest.Opener.
func (o *ObjectsOpener) Open(ctx context.Context, stored []byte) (ingest.Source, error) {
	p, err := o.position(stored)
	if err != nil {
		return nil, err
	}
	list := &objects{store: o.store, options: o.options, log: o.log, after: p.at.Path}
	if p.at.Path != "" && !p.at.Object {
		if err := list.adopt(ctx, &p.at); err != nil {
			return nil, err
		}
	}
	list.seen = p.at.Seen
	s := newSource(ctx, o.options)
	s.objects = list
	if p.at.Path == "" {
		return s, nil
	}
	err = list.recheck(ctx)
	var in *input
	if err == nil {
		in, err = list.resume(ctx, p.at)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if in != nil {
		s.inputs = append(s.inputs, in)
	}
	return s, nil
}

// seen describes the objects that were read, so that one that is added before the cursor is
// noticed.
type seen struct {
	Count    uint64
	Hash     uint64 // XOR of the hashes of the names
	Modified int64  // the latest time of modification, in nanoseconds since 1970
}

func (s *seen) add(o Object) {
	s.Count++
	s.Hash ^= xxhash.Sum64String(o.Name)
	s.Modified = max(s.Modified, o.Modified.UnixNano())
}

// objects lists the objects of a store.
type objects struct {
	store   Store
	options Options
	log     *slog.Logger
	after   string   // the last object that was opened
	page    []Object // behind it
	seen    seen     // up to it
	checked time.Time
	unread  error        // of the last recheck: objects up to after that are not read
	touched bool         // after was modified later than the objects of seen, at the last recheck
	waiting atomic.Int64 // bytes of page
}

// next returns the next object; behind the last one io.EOF or unread. With Follow it waits for
// one.
func (o *objects) next(ctx context.Context) (*input, error) {
	for {
		if len(o.page) == 0 {
			if err := o.list(ctx); err != nil {
				return nil, err
			}
		}
		if len(o.page) == 0 && !o.options.Follow {
			return nil, cmp.Or(o.unread, io.EOF)
		}
		if len(o.page) == 0 {
			if err := o.wait(ctx); err != nil {
				return nil, err
			}
			continue
		}
		object := o.page[0]
		o.page = o.page[1:]
		o.waiting.Add(-object.Size)
		o.after = object.Name
		o.seen.add(object)
		in, err := o.input(ctx, object.Name, object.Size)
		if errors.Is(err, fs.ErrNotExist) {
			o.log.Warn("an object was removed before it was read", "object", o.store.Describe(object.Name))
			continue
		}
		if err != nil {
			return nil, err
		}
		in.written = object.Modified
		return in, nil
	}
}

// list lists a page of objects.
func (o *objects) list(ctx context.Context) error {
	for object, err := range o.store.List(ctx, o.after) {
		if err != nil {
			return err
		}
		o.page = append(o.page, object)
		o.waiting.Add(object.Size)
		if len(o.page) == o.store.PageObjects() {
			break
		}
	}
	return nil
}

// wait waits before the next list.
func (o *objects) wait(ctx context.Context) error {
	if o.after != "" && time.Since(o.checked) >= recheckInterval {
		return o.recheck(ctx)
	}
	if !ctxtime.Sleep(ctx, o.store.PollInterval()) {
		return ctx.Err()
	}
	return nil
}

// recheck lists the objects that were read, and sets unread if one was added or changed. Later
// rechecks report it again: an added one as long as it is there, a changed one until an object that
// was modified later is read.
func (o *objects) recheck(ctx context.Context) error {
	o.checked, o.unread, o.touched = time.Now(), nil, false
	var now seen
	var changed []string
	for object, err := range o.store.List(ctx, "") {
		if err != nil {
			return err
		}
		if object.Name > o.after {
			break
		}
		now.add(object)
		switch later := object.Modified.UnixNano() > o.seen.Modified; {
		case later && object.Name == o.after:
			o.touched = true
		case later && len(changed) < maxExamples:
			changed = append(changed, o.store.Describe(object.Name))
		}
	}
	if len(changed) == 0 && (now.Count < o.seen.Count || now.Count == o.seen.Count && now.Hash == o.seen.Hash) {
		o.seen = now // without those that were removed
		return nil
	}
	if len(changed) == 0 && now.Count == o.seen.Count+1 {
		var err error
		if changed, err = o.named(ctx, now.Hash^o.seen.Hash); err != nil {
			return err
		}
	}
	examples := ""
	if len(changed) > 0 {
		examples = ", for example " + strings.Join(changed, ", ")
	}
	o.unread = fmt.Errorf("%w: objects were added or changed before the last one that was read, %s: %d were read, %d are present%s; "+
		"rename them, so that they sort behind it, or remove them, or read all objects again with --resume=false",
		ingest.ErrUnread, o.store.Describe(o.after), o.seen.Count, now.Count, examples)
	if o.options.Follow {
		o.log.Warn(o.unread.Error())
	}
	return nil
}

// named describes the object up to after whose name has a hash. If one object was added and none
// removed, the hashes of the names before and now differ by that of its name.
func (o *objects) named(ctx context.Context, hash uint64) ([]string, error) {
	for object, err := range o.store.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if object.Name > o.after {
			break
		}
		if xxhash.Sum64String(object.Name) == hash {
			return []string{o.store.Describe(object.Name)}, nil
		}
	}
	return nil, nil
}

// input returns the input of an object of the size that a list states. The object may have been
// replaced by a smaller one since.
func (o *objects) input(ctx context.Context, name string, size int64) (*input, error) {
	in, err := o.inputOfSize(ctx, name, size)
	for errors.Is(err, io.ErrUnexpectedEOF) {
		now, sizeErr := o.store.Size(ctx, name)
		if sizeErr != nil {
			return nil, sizeErr
		}
		if now >= size {
			return nil, err
		}
		size = now
		in, err = o.inputOfSize(ctx, name, size)
	}
	return in, err
}

func (o *objects) inputOfSize(ctx context.Context, name string, size int64) (*input, error) {
	in := &input{name: o.store.Describe(name), store: o.store, stable: true, format: o.options.Format, encoding: o.options.encoding(), size: size}
	in.from.Path, in.from.Object, in.from.Seen = name, true, o.seen
	in.from.File.Inode = uint64(size)
	if len(name) > maxCursorPath {
		return nil, fmt.Errorf("%s: the name has %d bytes, more than %d", in.name, len(name), maxCursorPath)
	}
	if err := in.readHead(ctx); err != nil {
		return nil, err
	}
	in.detect()
	return in, nil
}

// resume returns the input that continues at the cursor, nil if the object was read to its
// end. Records that cannot be compared at once are read again, if the object was modified.
func (o *objects) resume(ctx context.Context, at cursor) (*input, error) {
	size, err := o.store.Size(ctx, at.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && at.AtEnd:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the last run ended in the middle of %s, after line %d, and it does not exist any more; restore it, or use --resume=false",
			o.store.Describe(at.Path), at.Lines)
	case err != nil:
		return nil, err
	}
	in, err := o.input(ctx, at.Path, size)
	if err != nil {
		return nil, err
	}
	if size != int64(at.File.Inode) && !in.seekable() {
		return nil, fmt.Errorf("%s: it had %d bytes when it was read, and now has %d; restore it, or use --resume=false", in.name, at.File.Inode, size)
	}
	if err := in.resumeAt(ctx, at); err != nil {
		return nil, err
	}
	if !at.AtEnd || size != int64(at.File.Inode) {
		return in, nil
	}
	if o.touched {
		in.skip = &at // it may have been rewritten: compare all records
		return in, nil
	}
	return nil, nil
}

// objectAt reads an object at any place.
type objectAt struct {
	ctx   context.Context
	store Store
	name  string
}

func (o *objectAt) ReadAt(p []byte, offset int64) (int, error) {
	r, err := o.store.Open(o.ctx, o.name, offset, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err := io.ReadFull(r, p)
	if err == io.ErrUnexpectedEOF { //nolint:errorlint // one that is wrapped is a failed request
		err = io.EOF
	}
	return n, err
}

func (o *objectAt) Close() error { return nil }
