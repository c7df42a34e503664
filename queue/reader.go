package queue

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/stored"

	"github.com/cockroachdb/errors"
)

// Reader reads the queue in a directory, also while it is written or copied. It is safe
// for concurrent use.
type Reader struct {
	dir     string
	options ReaderOptions
	files   fileCache
	listed  directory
	settled settledCache
	done    chan struct{} // closed by Close
	closing sync.Once
	// unwatched: it has been logged that the directory cannot be watched.
	unwatched atomic.Bool
}

// OpenReader opens the queue in dir for reading. The directory must exist; it may be
// empty.
func OpenReader(dir string, opts *ReaderOptions) (*Reader, error) {
	r := &Reader{dir: dir, done: make(chan struct{})}
	if opts != nil {
		r.options = *opts
	}
	if r.options.FS == nil {
		r.options.FS = vfs.OS
	}
	if r.options.PollInterval <= 0 {
		r.options.PollInterval = DefaultPollInterval
	}
	if r.options.Logger == nil {
		r.options.Logger = slog.New(slog.DiscardHandler)
	}
	info, err := r.options.FS.Stat(dir)
	if err != nil {
		return nil, errors.Wrap(err, "queue: opening for reading")
	}
	if !info.Dir {
		return nil, errors.Newf("queue: opening for reading: %s is not a directory", dir)
	}
	if r.options.Decoders == nil {
		r.options.Decoders = stored.NewDecoderCache(DefaultDecoderBytes)
	}
	r.listed.fs, r.listed.path = r.options.FS, dir
	r.files.init(r.options.FS, dir, r.options.Decoders)
	return r, nil
}

// Close releases the files. Tail and Scan end with ErrClosed, as do later calls. Close is
// idempotent.
func (r *Reader) Close() error {
	r.closing.Do(func() {
		close(r.done)
		r.files.close()
	})
	return nil
}

func (r *Reader) isClosed() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Document appends the document at the address to dst. On any error it returns dst
// unchanged. It takes constant time, and allocates nothing if dst has enough capacity,
// unless the codec does (lzo) or the document takes more than a megabyte as stored.
//
// ErrDeleted: the address is that of a delete. ErrUnavailable: the document cannot be
// read from the files in the directory.
func (r *Reader) Document(dst []byte, a Address) ([]byte, error) {
	q := request{r: r, fetch: fetch{at: a, dst: dst}}
	err := q.document()
	return q.dst, err
}

// DocumentFor is Document, but returns ErrUnavailable if the address is that of another
// id.
func (r *Reader) DocumentFor(dst, id []byte, a Address) ([]byte, error) {
	if len(id) == 0 {
		return dst, ErrIDEmpty
	}
	q := request{r: r, fetch: fetch{id: id, at: a, dst: dst}}
	err := q.document()
	return q.dst, err
}

// Segments describes the segments in the directory, in order. It omits segments that
// cannot be read; Check reports them.
func (r *Reader) Segments() ([]SegmentInfo, error) {
	l, err := r.list()
	if err != nil {
		return nil, err
	}
	infos := make([]SegmentInfo, 0, len(l.numbers))
	var seen SegmentID
	for _, n := range l.places() {
		if n <= seen {
			continue
		}
		if s, _, err := r.openCovering(n); err == nil && s != nil {
			w := &walk{}
			w.marked.totals = s.footer.totals
			infos = append(infos, describe(s, w))
			seen = s.header.rewrites.last
			s.close()
			continue
		}
		s, w, err := r.survey(n)
		if err != nil {
			r.options.Logger.Debug("segment cannot be described", "segment", n, "error", err)
			continue
		}
		infos = append(infos, describe(s, w))
		s.close()
	}
	return infos, nil
}

// list returns the listing of the directory. It may be shared and must not be changed.
func (r *Reader) list() (listing, error) {
	if r.isClosed() {
		return listing{}, ErrClosed
	}
	k, err := r.listed.look(true)
	if err != nil {
		return listing{}, errors.Wrap(err, "queue: listing the directory")
	}
	return k.listing, nil
}

// survey opens the segment and finds the end of its committed frames. If both files exist
// it takes the sealed one, unless only the open one is readable.
func (r *Reader) survey(n SegmentID) (*segmentFile, *walk, error) {
	var first error
	for i, suffix := range suffixes {
		if i == 2 && !errors.Is(first, fs.ErrNotExist) {
			break
		}
		s, err := openSegmentFile(r.options.FS, segmentPath(r.dir, n, suffix), n)
		if err != nil {
			if first == nil || errors.Is(first, fs.ErrNotExist) {
				first = err
			}
			continue
		}
		w := s.newWalk()
		if s.footer != nil {
			w.marked.end, w.marked.totals = s.limit(), s.footer.totals
			return s, w, nil
		}
		var b block
		if err := w.advance(s, &b); err != nil && !isContent(err) {
			s.close()
			return nil, nil, err
		}
		return s, w, nil
	}
	return nil, nil, first
}

func describe(s *segmentFile, w *walk) SegmentInfo {
	t := &w.marked.totals
	info := SegmentInfo{
		ID:              s.number,
		Last:            max(s.number, s.header.rewrites.last),
		Generation:      s.header.rewrites.generation,
		dictionary:      s.header.dictionary.hash,
		sampled:         s.header.sampled,
		Sealed:          s.footer != nil,
		DictionaryBytes: int(s.header.dictionary.bytes),
		Bytes:           s.info.Size,
		Blocks:          int64(t.blocks),
		Entries:         int64(t.entries),
		Documents:       int64(t.documents),
		Deletes:         int64(t.entries - t.documents),
		RawBytes:        int64(t.raw),
		StoredBytes:     int64(t.stored),
		Created:         time.UnixMilli(s.header.created),
	}
	if s.relocations != nil && len(s.relocations.lost) > 0 {
		info.lost = s.relocations.lost[0].from.Segment
	}
	info.Codec = s.header.codec.String()
	if t.blocks > 0 {
		info.FirstAppended, info.LastAppended = time.UnixMilli(t.first), time.UnixMilli(t.last)
	}
	return info
}

// End returns the position after the last committed entry in the directory, equal to its
// Entry.Next. It is the zero Position if there are no readable entries.
func (r *Reader) End() Position {
	l, err := r.list()
	if err != nil {
		return Position{}
	}
	for _, n := range slices.Backward(l.places()) {
		s, _, err := l.openCovering(r.options.FS, r.dir, n)
		if err != nil {
			continue
		}
		var last uint32
		if s != nil {
			last = s.footer.lastBlock
		} else {
			var w *walk
			if s, w, err = r.survey(n); err != nil {
				continue
			}
			last = w.marked.lastBlock
		}
		end, ok := positionAfter(s, last)
		s.close()
		if ok {
			return end
		}
	}
	return Position{}
}

// positionAfter returns the position after the block at an offset, the last one of this
// file; 0: it has no block.
func positionAfter(s *segmentFile, last uint32) (Position, bool) {
	var b block
	if last == 0 {
		return Position{}, false
	}
	if _, err := s.frame(&b, int64(last)); err != nil {
		return Position{}, false
	}
	at, _ := b.origin(Address{Segment: s.number, Block: last})
	return Position{
		Queue: s.header.queue, Next: s.afterBlock(&b, at),
		Proof: Proof{Footer: s.before(at.Segment).half(), Chain: b.chain()},
	}, true
}

// VerifyFile verifies every byte of one file of the directory, by its name. Damage is in
// the report; the error is about reading the file.
func (r *Reader) VerifyFile(ctx context.Context, name string) (Report, error) {
	if r.isClosed() {
		return Report{}, ErrClosed
	}
	c := checker{fs: r.options.FS, dir: r.dir}
	if run, ok := parseRewriteName(name); ok {
		err := c.rewrite(ctx, run)
		return c.report, err
	}
	n, suffix, ok := parseName(name)
	if !ok {
		return Report{}, errors.Newf("queue: %q is not the name of a segment's file", name)
	}
	err := c.file(ctx, n, suffix)
	return c.report, err
}

// Bind restricts fetches to segments of the queue with the id. It is needed if files of
// another queue may be copied into the directory: both queues can have the same id at the
// same address.
func (r *Reader) Bind(queue [16]byte) { r.files.bound.Store(&queue) }

// IDOf returns the id of the queue that a segment's file belongs to, by its header.
func IDOf(fsys vfs.FS, path string) ([16]byte, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return [16]byte{}, err
	}
	defer file.Close()
	b := make([]byte, headerBytes)
	if _, err := file.ReadAt(b, 0); err != nil {
		return [16]byte{}, fmt.Errorf("queue: %s: header: %w", path, err)
	}
	header, err := parseHeader(b)
	if err != nil {
		return [16]byte{}, fmt.Errorf("queue: %s: %w", path, err)
	}
	return header.queue, nil
}
