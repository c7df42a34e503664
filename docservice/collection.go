package docservice

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/boxcarrpc"
	"docstore/internal/vfs"
	"docstore/queue"
)

// Collection serves the documents of one queue by their ids. Its methods may
// be called from many goroutines at once.
type Collection struct {
	name     string
	dir      string
	queueDir string
	options  CollectionOptions
	logger   *slog.Logger

	alive   context.Context // until Close
	stop    context.CancelFunc
	running sync.WaitGroup // the succession
	closing sync.Once
	closed  error // of the first Close

	// serving answers. Whoever finds it closed asks the one that has taken its
	// place, if there is one.
	serving atomic.Pointer[store]
	// succession is of another queue in the directory; see succession.go.
	succession struct {
		sync.Mutex
		next *store // nil: none is being indexed
	}
	// Of the succession alone: rebuilds paces those of damaged indexes, and discards those
	// of indexes that were to take over. rebuilding is set if a rebuild was under way when
	// the collection was opened.
	rebuilds   rebuildPace
	discards   rebuildPace
	rebuilding bool

	gets getCounters
	// quarantined counts the files set aside.
	quarantined atomic.Uint64
	swept       atomic.Uint64 // expired entries taken out of the index
	scrub       struct {
		passes, bytes atomic.Uint64
		ended         atomic.Int64 // Unix milliseconds; 0: none has
	}
}

// getCounters count the ids that were asked for by answer.
type getCounters struct {
	found, notFound, unavailable, failed atomic.Uint64
}

// OpenCollection opens the queue in queueDir and its index in dir, which is made
// if need be and belongs to the collection, and starts to tail the queue into the
// index. The collection answers at once with what is in the index already; Status
// tells when it is ready. opts may be nil.
func OpenCollection(name, queueDir, dir string, opts *CollectionOptions) (*Collection, error) {
	c := &Collection{name: name, dir: dir, queueDir: queueDir, options: opts.withDefaults()}
	c.logger = c.options.Logger.With("collection", name)
	c.alive, c.stop = context.WithCancel(context.Background())
	s, err := c.open()
	if err != nil {
		c.stop()
		return nil, errors.Wrapf(err, "collection %s", name)
	}
	c.serving.Store(s)
	s.start()
	c.running.Go(func() { c.runSuccession(c.alive) })
	return c, nil
}

// open opens what is served.
func (c *Collection) open() (*store, error) {
	if err := vfs.MakeDir(c.options.FS, c.dir); err != nil {
		return nil, err
	}
	if err := removeLeftovers(c.options.FS, c.dir); err != nil {
		return nil, err
	}
	var lost *Fault
	for {
		numbers, err := listIndexes(c.options.FS, c.dir)
		if err != nil {
			return nil, err
		}
		c.rebuilding = len(numbers) > 1
		number := append(numbers, firstIndex)[0]
		s, err := c.openStore(number, c.queueDir, [16]byte{})
		if err == nil {
			s.mu.faults.lost = lost
			return s, nil
		}
		if !isDamage(err) {
			return nil, err
		}
		c.logger.Error("the index is damaged; it is set aside and rebuilt from the queue",
			"index", number.path(c.dir), "aside", number.path(c.dir)+damagedExtension, "error", err)
		lost = &Fault{
			Path: number.path(c.dir) + damagedExtension, Since: c.options.Now(),
			Reason: "the index was damaged and is rebuilt from the queue: " + err.Error(),
		}
		if err := c.setIndexAside(number); err != nil {
			return nil, err
		}
	}
}

// Name is the name under which the collection is asked for.
func (c *Collection) Name() string { return c.name }

// Close stops tailing and closes queue and index. Everything after it, calls
// under way too, fails with ErrClosed. Closing again returns what the first
// Close did.
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

// Get appends the document with the id to dst. On any error it returns dst
// unchanged: ErrNotFound, ErrUnavailable, ErrBadID, ErrClosed, or what went
// wrong.
func (c *Collection) Get(dst, id []byte) ([]byte, error) {
	return c.GetContext(context.Background(), dst, id)
}

// GetContext is Get for a request whose answer is the document: it reserves memory for the
// document with boxcarrpc.Reserve, whose error it may return.
func (c *Collection) GetContext(ctx context.Context, dst, id []byte) ([]byte, error) {
	dst, _, err := c.get(ctx, dst, id, 0, nil)
	return dst, err
}

// get is store.get.
func (c *Collection) get(ctx context.Context, dst, id []byte, take queue.CodecSet, tell stages) (result []byte, asStored bool, err error) {
	if take != 0 || !boxcarrpc.HasReservation(ctx) {
		return c.getOnce(ctx, dst, id, take, tell)
	}
	noMemory := decodePlain(ctx, func() int {
		result = nil
		result, asStored, err = c.getOnce(ctx, dst, id, take, tell)
		return len(result) - len(dst)
	})
	if noMemory != nil {
		return dst, false, noMemory
	}
	return result, asStored, err
}

// getOnce is get of a document whose length is known, or need not be.
func (c *Collection) getOnce(ctx context.Context, dst, id []byte, take queue.CodecSet, tell stages) (_ []byte, asStored bool, _ error) {
	for {
		s := c.serving.Load()
		result, asStored, err := s.get(ctx, dst, id, take, tell)
		if err == nil || !c.superseded(s, err) {
			return result, asStored, err
		}
	}
}

// GetMany looks many ids up at once and reads the documents, so that many waits for
// memory are one, appending them to dst. The answers are in the order of the ids. They
// may be fewer: if the documents take more than maxBytes, ids at the end are left out,
// but never the first. The answers' documents are parts of the slice that is returned.
func (c *Collection) GetMany(dst []byte, ids [][]byte, maxBytes int) ([]byte, []Answer, error) {
	var list answerList
	result, answered, err := c.getMany(context.Background(), dst, ids, 0, maxBytes, nil, new(batchMemory), &list)
	if err != nil {
		return dst, nil, err
	}
	return result, list.first(answered, result, len(dst)), nil
}

// getMany is store.getMany: the first ids are answered to a receiver, in documents that
// need no codec but those taken in their stored form.
func (c *Collection) getMany(ctx context.Context, dst []byte, ids [][]byte, take queue.CodecSet, maxBytes int, tell stages, memory *batchMemory, to receiver) (result []byte, answered int, err error) {
	if take != 0 || !boxcarrpc.HasReservation(ctx) {
		return c.getManyOnce(ctx, dst, ids, take, maxBytes, tell, memory, to)
	}
	noMemory := decodePlain(ctx, func() int {
		result = nil
		result, answered, err = c.getManyOnce(ctx, dst, ids, take, maxBytes, tell, memory, to)
		return len(result) - len(dst)
	})
	if noMemory != nil {
		return dst, 0, noMemory
	}
	return result, answered, err
}

// getManyOnce is getMany of documents whose length is known, or need not be.
func (c *Collection) getManyOnce(ctx context.Context, dst []byte, ids [][]byte, take queue.CodecSet, maxBytes int, tell stages, memory *batchMemory, to receiver) (_ []byte, answered int, err error) {
	for {
		s := c.serving.Load()
		to.reset()
		result, answered, err := s.getMany(ctx, dst, ids, take, maxBytes, tell, memory, to)
		if err == nil || !c.superseded(s, err) {
			return result, answered, err
		}
	}
}

// superseded tells whether an error is that the store was closed because another
// one serves now.
func (c *Collection) superseded(s *store, err error) bool {
	return errors.Is(err, ErrClosed) && c.serving.Load() != s
}

// ask asks what serves, again if something else does by then.
func ask[T any](c *Collection, question func(*store) (T, error)) (T, error) {
	for {
		s := c.serving.Load()
		answer, err := question(s)
		if err == nil || !c.superseded(s, err) {
			return answer, err
		}
	}
}

// dictionary returns the dictionary with the hash, ErrUnavailable where no
// segment here holds it.
func (c *Collection) dictionary(hash queue.DictionaryHash) ([]byte, error) {
	return ask(c, func(s *store) ([]byte, error) { return s.dictionary(hash) })
}
