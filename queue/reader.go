package queue

import (
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
	"docstore/queue/stored"

	"github.com/cockroachdb/errors"
)

// Reader reads the queue in a directory, also while it is written or copied. It is safe
// for concurrent use.
type Reader struct {
	dir     string
	options ReaderOptions
	files   segment.Cache
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
	r.files.Init(r.options.FS, dir, r.options.Decoders)
	return r, nil
}

// Close releases the files. Tail and Scan end with ErrClosed, as do later calls. Close is
// idempotent.
func (r *Reader) Close() error {
	r.closing.Do(func() {
		close(r.done)
		r.files.Close()
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
	q := request{r: r, Fetch: segment.Fetch{At: a, Dst: dst}}
	err := q.document()
	return q.Dst, err
}

// DocumentFor is Document, but returns ErrUnavailable if the address is that of another
// id.
func (r *Reader) DocumentFor(dst, id []byte, a Address) ([]byte, error) {
	if len(id) == 0 {
		return dst, ErrIDEmpty
	}
	q := request{r: r, Fetch: segment.Fetch{ID: id, At: a, Dst: dst}}
	err := q.document()
	return q.Dst, err
}

// Segments describes the segments in the directory, in order. It omits segments that
// cannot be read; Check reports them.
func (r *Reader) Segments() ([]SegmentInfo, error) {
	l, err := r.list()
	if err != nil {
		return nil, err
	}
	infos := make([]SegmentInfo, 0, len(l.Numbers))
	var seen SegmentID
	for _, n := range l.Places() {
		if n <= seen {
			continue
		}
		if s, _, err := r.openCovering(n); err == nil && s != nil {
			w := &segment.Walk{}
			w.Marked.Totals = s.Footer.Totals
			infos = append(infos, describe(s, w))
			seen = s.Header.Rewrites.Last
			s.Close()
			continue
		}
		s, w, err := r.survey(n)
		if err != nil {
			r.options.Logger.Debug("segment cannot be described", "segment", n, "error", err)
			continue
		}
		infos = append(infos, describe(s, w))
		s.Close()
	}
	return infos, nil
}

// list returns the listing of the directory. It may be shared and must not be changed.
func (r *Reader) list() (segment.Listing, error) {
	if r.isClosed() {
		return segment.Listing{}, ErrClosed
	}
	k, err := r.listed.look(true)
	if err != nil {
		return segment.Listing{}, errors.Wrap(err, "queue: listing the directory")
	}
	return k.Listing, nil
}

// survey opens the segment and finds the end of its committed frames. If both files exist
// it takes the sealed one, unless only the open one is readable.
func (r *Reader) survey(n SegmentID) (*segment.File, *segment.Walk, error) {
	var first error
	for i, suffix := range segment.Suffixes {
		if i == 2 && !errors.Is(first, fs.ErrNotExist) {
			break
		}
		s, err := segment.Open(r.options.FS, segment.Path(r.dir, n, suffix), n)
		if err != nil {
			if first == nil || errors.Is(first, fs.ErrNotExist) {
				first = err
			}
			continue
		}
		w := s.NewWalk()
		if s.Footer != nil {
			w.Marked.End, w.Marked.Totals = s.Limit(), s.Footer.Totals
			return s, w, nil
		}
		var b segment.Block
		if err := w.Advance(s, &b); err != nil && !segment.IsContent(err) {
			s.Close()
			return nil, nil, err
		}
		return s, w, nil
	}
	return nil, nil, first
}

func describe(s *segment.File, w *segment.Walk) SegmentInfo {
	t := &w.Marked.Totals
	info := SegmentInfo{
		ID:              s.Number,
		Last:            max(s.Number, s.Header.Rewrites.Last),
		Generation:      s.Header.Rewrites.Generation,
		Dictionary:      s.Header.Dictionary.Hash,
		Sealed:          s.Footer != nil,
		DictionaryBytes: int(s.Header.Dictionary.Bytes),
		Bytes:           s.Info.Size,
		Blocks:          int64(t.Blocks),
		Entries:         int64(t.Entries),
		Documents:       int64(t.Documents),
		Deletes:         int64(t.Entries - t.Documents),
		RawBytes:        int64(t.Raw),
		StoredBytes:     int64(t.Stored),
		Created:         time.UnixMilli(s.Header.Created),
	}
	info.Codec = s.Header.Codec.String()
	if t.Blocks > 0 {
		info.FirstAppended, info.LastAppended = time.UnixMilli(t.First), time.UnixMilli(t.Last)
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
	for _, n := range slices.Backward(l.Places()) {
		s, _, err := l.OpenCovering(r.options.FS, r.dir, n)
		if err != nil {
			continue
		}
		var last uint32
		if s != nil {
			last = s.Footer.LastBlock
		} else {
			var w *segment.Walk
			if s, w, err = r.survey(n); err != nil {
				continue
			}
			last = w.Marked.LastBlock
		}
		end, ok := positionAfter(s, last)
		s.Close()
		if ok {
			return end
		}
	}
	return Position{}
}

// positionAfter returns the position after the block at an offset, the last one of this
// file; 0: it has no block.
func positionAfter(s *segment.File, last uint32) (Position, bool) {
	var b segment.Block
	if last == 0 {
		return Position{}, false
	}
	if _, err := s.Frame(&b, int64(last)); err != nil {
		return Position{}, false
	}
	at, _ := b.Origin(Address{Segment: s.Number, Block: last})
	return Position{
		Queue: s.Header.Queue, Next: s.AfterBlock(&b, at),
		Proof: Proof{Footer: s.Before(at.Segment).Half(), Chain: b.Chain()},
	}, true
}

// Bind restricts fetches to segments of the queue with the id. It is needed if files of
// another queue may be copied into the directory: both queues can have the same id at the
// same address.
func (r *Reader) Bind(queue [16]byte) { r.files.Bound.Store(&queue) }

// IDOf returns the id of the queue that a segment's file belongs to, by its header.
func IDOf(fsys vfs.FS, path string) ([16]byte, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return [16]byte{}, err
	}
	defer file.Close()
	b := make([]byte, segment.HeaderBytes)
	if _, err := file.ReadAt(b, 0); err != nil {
		return [16]byte{}, fmt.Errorf("queue: %s: header: %w", path, err)
	}
	header, err := segment.ParseHeader(b)
	if err != nil {
		return [16]byte{}, fmt.Errorf("queue: %s: %w", path, err)
	}
	return header.Queue, nil
}
