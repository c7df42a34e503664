package docservice

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
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
	index    *lsm.DB
	queue    *queue.Reader
	verified *verifiedFiles // of the background pass, which alone uses it

	// queueID is the id of the queue once it is known.
	queueID atomic.Pointer[[16]byte]
	// decoders decode documents in their stored form for callers that cannot.
	decoders *queue.Decoders

	alive   context.Context // until Close
	stop    context.CancelFunc
	running sync.WaitGroup // the tail, the background pass and the sweep
	closing sync.Once
	closed  error // of the first Close

	// following: the tail has caught up once and is not stopped by a fault, so
	// what the index does not hold does not exist.
	following atomic.Bool
	gets      getCounters
	// quarantined counts the files set aside.
	quarantined atomic.Uint64
	swept       atomic.Uint64 // expired entries taken out of the index
	recheck     chan struct{} // a fetch has found new damage: the pass looks at once

	// indexing is held while the index is written, by the tail or by the sweep,
	// which must know what it removes.
	indexing struct {
		sync.Mutex
		// soonest is of all entries in the index, or earlier.
		soonest expiries
	}

	mu struct {
		sync.Mutex
		tail   tailState
		faults faultList
		// suspect are the paths of files in which a fetch has found damage since
		// the background pass last looked.
		suspect map[string]bool
		// awaited are files that were set aside and have not come again.
		awaited map[segmentKey]segmentFile
		// changed is closed, and replaced, when tail or faults have changed.
		changed chan struct{}
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
	options := opts.withDefaults()
	c := &Collection{
		name:     name,
		dir:      dir,
		queueDir: queueDir,
		options:  options,
		logger:   options.Logger.With("collection", name),
		recheck:  make(chan struct{}, 1),
	}
	c.alive, c.stop = context.WithCancel(context.Background())
	c.mu.suspect = make(map[string]bool)
	c.mu.awaited = make(map[segmentKey]segmentFile)
	c.mu.changed = make(chan struct{})
	c.indexing.soonest = 1 // nobody knows: the first pass finds out
	if err := makeDir(options.FS, dir); err != nil {
		return nil, errors.Wrapf(err, "collection %s", name)
	}
	indexDir := firstIndex.path(dir)
	index, err := lsm.Open(indexDir, &lsm.Options{
		FS:            options.FS,
		Logger:        c.logger,
		MemtableBytes: options.MemtableBytes,
		FilterBytes:   options.FilterBytes,
		Budget:        options.Budget,
	})
	if err != nil {
		return nil, errors.Wrapf(err, "collection %s: opening the index", name)
	}
	c.index = index
	if c.mu.tail.position, err = readPosition(index); err != nil {
		return nil, errors.CombineErrors(errors.Wrapf(err, "collection %s: index %s", name, indexDir), index.Close())
	}
	c.queue, err = queue.OpenReader(queueDir, &queue.ReaderOptions{
		FS:           options.FS,
		PollInterval: options.PollInterval,
		Logger:       c.logger,
		OnCaughtUp:   c.caughtUp,
	})
	if err != nil {
		return nil, errors.CombineErrors(errors.Wrapf(err, "collection %s: opening the queue", name), index.Close())
	}
	c.decoders = queue.NewDecoders(maxDictionaryBytes, func(_ context.Context, hash queue.DictionaryHash) ([]byte, error) {
		return c.queue.Dictionary(nil, hash)
	})
	c.noteQueueID(c.mu.tail.position)
	c.verified = newVerifiedFiles(options.FS, firstIndex.verifiedPath(dir))
	if options.VerifyInterval > 0 {
		if err := c.loadAside(); err != nil {
			return nil, errors.CombineErrors(errors.Wrapf(err, "collection %s: listing the queue", name),
				errors.CombineErrors(c.queue.Close(), index.Close()))
		}
	}
	c.running.Go(func() { c.runTail(c.alive) })
	if options.VerifyInterval > 0 {
		c.running.Go(func() { c.runVerify(c.alive) })
	}
	if options.SweepInterval > 0 {
		c.running.Go(func() { c.runSweep(c.alive) })
	}
	return c, nil
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
		c.closed = errors.CombineErrors(c.queue.Close(), c.index.Close())
	})
	return c.closed
}

// Get appends the document with the id to dst. On any error it returns dst
// unchanged: ErrNotFound, ErrUnavailable, ErrBadID, ErrClosed, or what went
// wrong.
func (c *Collection) Get(dst, id []byte) ([]byte, error) {
	dst, _, err := c.get(dst, id, 0)
	return dst, err
}

// get is Get, giving a document that needs no codec but those taken in its
// stored form, which it reports.
func (c *Collection) get(dst, id []byte, take queue.CodecSet) (_ []byte, asStored bool, _ error) {
	if !validIDBytes(len(id)) {
		return dst, false, c.answer(ErrBadID, queue.Address{})
	}
	var buffer [indexEntryBytes]byte
	value, err := c.index.Get(buffer[:0], id)
	if err != nil {
		return dst, false, c.answer(err, queue.Address{})
	}
	entry, err := decodeIndexEntry(value)
	if err != nil {
		return dst, false, c.answer(err, queue.Address{})
	}
	if c.options.Cache != nil {
		return c.getCached(dst, id, entry, take)
	}
	return c.fetch(dst, id, entry, take)
}

// fetch appends the document of an index entry to dst, as get does. The id may
// have been overwritten since the entry was read: an address is for ever, so
// that gives the version before.
func (c *Collection) fetch(dst, id []byte, entry indexEntry, take queue.CodecSet) (_ []byte, asStored bool, _ error) {
	if entry.expiry != 0 && entry.expired(c.options.Now()) {
		return dst, false, c.answer(ErrNotFound, entry.address)
	}
	result, asStored, err := c.queue.StoredFor(dst, id, entry.address, take)
	var gone *queue.GoneError
	if errors.As(err, &gone) {
		newer, err := c.superseding(id, entry, gone)
		if err != nil {
			return dst, false, c.answer(err, entry.address)
		}
		return c.fetch(dst, id, newer, take)
	}
	if err != nil {
		return dst, false, c.answer(err, entry.address)
	}
	c.gets.found.Add(1)
	return result, asStored, nil
}

// superseding returns the index entry that has taken the place of one whose
// document compaction has left out. ErrNotFound: none has, and so the document
// was deleted. Until the index has followed the queue to what superseded it,
// nobody can tell, and the error is gone itself.
func (c *Collection) superseding(id []byte, entry indexEntry, gone *queue.GoneError) (indexEntry, error) {
	c.mu.Lock()
	position := c.mu.tail.position
	c.mu.Unlock()
	var buffer [indexEntryBytes]byte
	value, err := c.index.Get(buffer[:0], id)
	if err != nil {
		return entry, err
	}
	newer, err := decodeIndexEntry(value)
	switch {
	case err != nil || newer.address != entry.address:
		return newer, err
	case position.Queue == gone.Settled.Queue && position.Next.Compare(gone.Settled.Next) >= 0:
		return entry, ErrNotFound
	}
	return entry, unavailable(gone)
}

// dictionary returns the dictionary with the hash, ErrUnavailable where no
// segment here holds it.
func (c *Collection) dictionary(hash queue.DictionaryHash) ([]byte, error) {
	content, err := c.queue.Dictionary(nil, hash)
	switch {
	case errors.Is(err, queue.ErrClosed):
		return nil, ErrClosed
	case errors.Is(err, queue.ErrNoDictionary):
		return nil, unavailable(err)
	}
	return content, err
}

// noteQueueID takes down which queue this is. A position of none does not tell.
func (c *Collection) noteQueueID(p queue.Position) {
	if c.queueID.Load() == nil && p.Queue != [16]byte{} {
		c.queueID.Store(&p.Queue)
	}
}

// validIDBytes tells whether there can be a document with an id of so many
// bytes. The index's empty key is no id: the position is kept there.
func validIDBytes(n int) bool { return n > 0 && n <= queue.MaxIDBytes }

// isLost tells whether a repair of the queue has noted the document as lost: no
// other copy is going to come, so that is no fault of this one.
func isLost(err error) bool {
	var lost *queue.LostError
	return errors.As(err, &lost)
}

// errNotRead is the answer for an id that is not in the index, while what is
// still to be read of the queue may hold it.
var errNotRead = unavailable(errors.New("the queue has not been read to its end"))

// unavailable makes an error that says why a document cannot be had match
// ErrUnavailable, for the standard library's errors.Is too.
func unavailable(reason error) error { return fmt.Errorf("%w: %w", ErrUnavailable, reason) }

// answer turns an error of index or queue into one of this package's, counts
// it, and records the fault that may be behind it. at is the address that was
// to be read, if it came to that.
func (c *Collection) answer(err error, at queue.Address) error {
	switch {
	case errors.Is(err, lsm.ErrNotFound) && c.following.Load(),
		errors.Is(err, ErrNotFound),
		errors.Is(err, queue.ErrDeleted):
		c.gets.notFound.Add(1)
		return ErrNotFound
	case errors.Is(err, lsm.ErrNotFound):
		c.gets.unavailable.Add(1)
		return errNotRead
	case errors.Is(err, ErrUnavailable): // superseding
		c.gets.unavailable.Add(1)
		return err
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, lsm.ErrCorrupt), errors.Is(err, errIndexEntry):
		// Where the index is damaged the address is not known, but for the
		// caller it is the same: another server may have the document.
		c.gets.unavailable.Add(1)
		if !isLost(err) {
			c.recordFault(err, at)
		}
		return unavailable(err)
	case errors.Is(err, lsm.ErrClosed), errors.Is(err, queue.ErrClosed):
		err = ErrClosed
	}
	c.gets.failed.Add(1)
	return err
}
