package collection

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/boxcarrpc/budget"
	"docstore/internal/vfs"
	"docstore/queue/codec"
)

// Collection serves the documents of one queue by their ids. Its methods are safe for
// concurrent use.
type Collection struct {
	name     string
	dir      string
	queueDir string
	options  Options
	logger   *slog.Logger

	alive   context.Context // until Close
	stop    context.CancelFunc
	running sync.WaitGroup // runReplacement
	closing sync.Once
	closed  error // result of the first Close

	// serving is the store that answers. A call that finds it closed retries with the store
	// that replaced it, if any.
	serving atomic.Pointer[store]
	// replacing holds the store that is being built to replace the served one; see
	// replacement.go.
	replacing struct {
		sync.Mutex
		next *store // nil: none
	}
	// Used only by runReplacement: rebuilds limits the rate of rebuilds of damaged indexes,
	// and discards that of discarded replacements. rebuilding is set if a rebuild was in
	// progress when the collection was opened.
	rebuilds   rebuildPace
	discards   rebuildPace
	rebuilding bool

	behind atomic.Bool // see SetBehind

	gets getCounters
	// quarantined counts the quarantined files.
	quarantined atomic.Uint64
	swept       atomic.Uint64 // expired entries removed from the index
	scrub       struct {
		passes, bytes atomic.Uint64
		ended         atomic.Int64 // Unix milliseconds; 0: none yet
	}
}

// getCounters count the requested ids by answer.
type getCounters struct {
	found, notFound, unavailable, failed atomic.Uint64
}

// Open opens the queue in queueDir and its index in dir, which is created if
// necessary and belongs to the collection, and starts to tail the queue into the index. The
// collection answers at once from the entries already in the index; Status reports when it
// is ready. opts may be nil.
func Open(name, queueDir, dir string, opts *Options) (*Collection, error) {
	c := &Collection{name: name, dir: dir, queueDir: queueDir, options: opts.withDefaults()}
	c.logger = c.options.Logger.With("collection", name)
	c.behind.Store(c.options.Behind)
	c.alive, c.stop = context.WithCancel(context.Background())
	s, err := c.open()
	if err != nil {
		c.stop()
		return nil, errors.Wrapf(err, "collection %s", name)
	}
	c.serving.Store(s)
	s.start()
	c.running.Go(func() { c.runReplacement(c.alive) })
	return c, nil
}

// open opens the store to serve.
func (c *Collection) open() (*store, error) {
	if err := vfs.MakeDir(c.options.FS, c.dir); err != nil {
		return nil, err
	}
	if err := c.removeLeftovers(); err != nil {
		c.logger.Warn("removing what an earlier run left failed; it is tried again at the next start", "error", err)
	}
	var lost *Fault
	for {
		numbers, err := listIndexes(c.options.FS, c.dir)
		if err != nil {
			return nil, err
		}
		number := append(numbers, firstIndex)[0]
		if err := c.serveOnly(number, numbers); err != nil {
			return nil, err
		}
		s, err := c.openStore(number, c.queueDir, [16]byte{})
		if err == nil {
			s.health.setLost(lost)
			return s, nil
		}
		if !isDamage(err) {
			return nil, err
		}
		c.logger.Error("the index is damaged; it is renamed and rebuilt from the queue",
			"index", number.path(c.dir), "aside", number.path(c.dir)+damagedExtension, "error", err)
		lost = &Fault{
			Path: number.path(c.dir) + damagedExtension, Since: c.options.Now(),
			Reason: "the index was damaged and is rebuilt from the queue: " + err.Error(),
		}
		if err := c.keepDamagedIndex(number); err != nil {
			return nil, err
		}
	}
}

// serveOnly records the served index, and removes the others except the next one.
func (c *Collection) serveOnly(served indexNumber, all []indexNumber) error {
	named, err := readServing(c.options.FS, c.dir)
	if err == nil && named != served {
		err = writeServing(c.options.FS, c.dir, served)
	}
	if err != nil {
		return err
	}
	c.rebuilding = slices.Contains(all, served.next())
	for _, n := range all {
		if n == served || n == served.next() {
			continue
		}
		err := c.removeIndex(n)
		c.logger.Warn("removing an index that an earlier run left", "index", n.path(c.dir), "error", err)
	}
	return nil
}

// Name returns the name under which the collection is served.
func (c *Collection) Name() string { return c.name }

// Close stops tailing and closes queue and index. Later calls and calls in progress fail
// with ErrClosed. Further calls of Close return the result of the first.
func (c *Collection) Close() error {
	c.closing.Do(func() {
		c.stop()
		c.running.Wait()
		c.closed = c.serving.Load().close()
		if next := c.next(); next != nil {
			c.closed = errors.CombineErrors(c.closed, next.close())
		}
	})
	return c.closed
}

// Get appends the document with the id to dst. On any error it returns dst unchanged:
// docservice.ErrNotFound, docservice.ErrUnavailable, docservice.ErrBadID, ErrClosed, or the
// read error.
func (c *Collection) Get(dst, id []byte) ([]byte, error) {
	return c.GetContext(context.Background(), dst, id)
}

// GetContext is Get for a request whose response is the document: it reserves memory for
// the document with budget.Reserve and may return the error of Reserve.
func (c *Collection) GetContext(ctx context.Context, dst, id []byte) ([]byte, error) {
	dst, _, err := c.get(ctx, dst, id, 0, nil)
	return dst, err
}

// get is reader.get.
func (c *Collection) get(ctx context.Context, dst, id []byte, accept codec.Set, trace stages) (_ []byte, asStored bool, _ error) {
	for {
		s := c.serving.Load()
		result, asStored, err := s.reader.get(ctx, dst, id, accept, trace)
		if err == nil || !c.superseded(s, err) {
			return result, asStored, err
		}
	}
}

// GetMany looks up many ids together, so that their cache misses overlap, reads the
// documents and appends them to dst. The answers are in the order of the ids. If the
// documents exceed maxBytes, ids at the end are left out, but never the first. The
// documents of the answers are parts of the returned slice.
func (c *Collection) GetMany(dst []byte, ids [][]byte, maxBytes int) ([]byte, []Answer, error) {
	var list Answers
	result, answered, err := c.getMany(context.Background(), dst, ids, 0, maxBytes, nil, new(batchMemory), &list)
	if err != nil {
		return dst, nil, err
	}
	return result, list.First(answered, result, len(dst)), nil
}

// getMany is store.getMany: it passes the answers for the first ids to a Receiver.
// Documents in a codec of accept are passed in their stored form.
func (c *Collection) getMany(ctx context.Context, dst []byte, ids [][]byte, accept codec.Set, maxBytes int, trace stages, memory *batchMemory, to Receiver) (result []byte, answered int, err error) {
	if accept != 0 || !budget.HasReservation(ctx) {
		return c.getManyOnce(ctx, dst, ids, accept, maxBytes, trace, memory, to)
	}
	noMemory := decodePlain(ctx, 0, func() int {
		result, answered, err = c.getManyOnce(ctx, dst, ids, accept, maxBytes, trace, memory, to)
		return len(result) - len(dst)
	}, func() {
		result = nil
		to.Reset()
	})
	if noMemory != nil {
		return dst, 0, noMemory
	}
	return result, answered, err
}

// getManyOnce is getMany for documents whose length is known or need not be reserved.
func (c *Collection) getManyOnce(ctx context.Context, dst []byte, ids [][]byte, accept codec.Set, maxBytes int, trace stages, memory *batchMemory, to Receiver) (_ []byte, answered int, err error) {
	for {
		s := c.serving.Load()
		to.Reset()
		result, answered, err := s.reader.getMany(ctx, dst, ids, accept, maxBytes, trace, memory, to)
		if err == nil || !c.superseded(s, err) {
			return result, answered, err
		}
	}
}

// superseded reports whether err means that the store was closed because another one has
// replaced it.
func (c *Collection) superseded(s *store, err error) bool {
	return errors.Is(err, ErrClosed) && c.serving.Load() != s
}

// ask calls question with the serving store, and again if that store is replaced meanwhile.
func ask[T any](c *Collection, question func(*store) (T, error)) (T, error) {
	for {
		s := c.serving.Load()
		answer, err := question(s)
		if err == nil || !c.superseded(s, err) {
			return answer, err
		}
	}
}

// dictionary returns the dictionary with the hash, docservice.ErrUnavailable if no segment
// here holds it.
func (c *Collection) dictionary(hash codec.DictionaryHash) ([]byte, error) {
	return ask(c, func(s *store) ([]byte, error) { return s.reader.dictionary(hash) })
}
