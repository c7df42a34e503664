package docservice

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/boxcarrpc"
	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// store is one queue and its index, that a collection serves. While a replacement is built,
// the collection has two; see replacement.go.
type store struct {
	collection *Collection
	number     indexNumber
	queueDir   string
	options    *CollectionOptions
	logger     *slog.Logger
	index      *lsm.DB
	queue      *queue.Reader
	verified   *verifiedFiles // used only by the background pass

	// queueID is the id of the queue, nil until it is known.
	queueID   atomic.Pointer[[16]byte]
	unsettled atomic.Pointer[unsettled]
	// rewrites caches the headers of rewrites. Used only by the background pass.
	rewrites map[string]knownRewrite
	// openVerified are the open files that the background pass has read. Used only by it.
	openVerified map[segmentKey]vfs.FileID
	// decoders decode documents for callers that do not accept the stored form.
	decoders *queue.Decoders

	alive   context.Context // until the store is stopped
	stop    context.CancelFunc
	running sync.WaitGroup // the tail, the background pass, the sweep and the scrub

	// gap is why the index may lack an id that the queue holds; nil: the index is complete.
	// stateChanged stores it.
	gap     atomic.Pointer[gap]
	recheck chan struct{} // wakes the background pass: a fetch has found damage

	// indexing is held by the tail and the sweep while they write to the index. The sweep
	// must not remove an entry that the tail has just written.
	indexing struct {
		sync.Mutex
		// soonest is at most the earliest expiry of all entries in the index.
		soonest expiries
	}

	mu struct {
		sync.Mutex
		tail   tailState
		faults faultList
		// reached: the tail has read the queue to its end since it last stopped.
		reached bool
		// stoppedBy is the error behind the fault that stops the tail, nil if it runs.
		stoppedBy error
		head      headState
		// suspect holds the paths of files in which a fetch has found damage since the
		// background pass last verified them.
		suspect map[string]bool
		// awaited are quarantined files that have not been copied again.
		awaited map[segmentKey]segmentFile
		// changed is closed and replaced when tail or faults change.
		changed chan struct{}
	}
}

// openStore opens an index, or creates it, for the queue in queueDir. A new index is for
// the queue with the id, or for any queue if the id is zero.
func (c *Collection) openStore(number indexNumber, queueDir string, id [16]byte) (*store, error) {
	path := number.path(c.dir)
	index, err := lsm.Open(path, &lsm.Options{
		FS:            c.options.FS,
		Logger:        c.logger,
		MemtableBytes: c.options.MemtableBytes,
		FilterBytes:   c.options.FilterBytes,
		Budget:        c.options.Budget,
	})
	if err != nil {
		return nil, errors.Wrap(err, "open the index")
	}
	position, err := readPosition(index)
	if err != nil {
		return nil, errors.CombineErrors(errors.Wrapf(err, "index %s", path), index.Close())
	}
	if position.IsZero() {
		position.Queue = id
	}
	s, err := c.newStore(number, index, queueDir, position)
	if err != nil {
		return nil, errors.CombineErrors(err, index.Close())
	}
	return s, nil
}

// newStore makes a store from an open index that has followed the queue to the position. On
// error the caller still owns the index.
func (c *Collection) newStore(number indexNumber, index *lsm.DB, queueDir string, position queue.Position) (_ *store, err error) {
	s := &store{
		collection: c, number: number, queueDir: queueDir, options: &c.options, logger: c.logger,
		index: index, recheck: make(chan struct{}, 1), rewrites: make(map[string]knownRewrite),
		openVerified: make(map[segmentKey]vfs.FileID),
		verified:     newVerifiedFiles(c.options.FS, number.verifiedPath(c.dir)),
	}
	s.alive, s.stop = context.WithCancel(c.alive)
	s.mu.suspect = make(map[string]bool)
	s.mu.awaited = make(map[segmentKey]segmentFile)
	s.mu.changed = make(chan struct{})
	s.mu.tail.position = position
	s.stateChanged()       // before any lookup
	s.indexing.soonest = 1 // unknown: makes the first pass run
	s.queue, err = queue.OpenReader(queueDir, &queue.ReaderOptions{
		FS:           c.options.FS,
		PollInterval: c.options.PollInterval,
		Logger:       c.logger,
		OnCaughtUp:   s.caughtUp,
		Decoders:     c.options.Decoders,
	})
	if err != nil {
		s.stop()
		return nil, errors.Wrap(err, "open the queue")
	}
	s.decoders = queue.NewDecoders(c.options.Decoders, func(_ context.Context, hash queue.DictionaryHash) ([]byte, error) {
		return s.queue.Dictionary(nil, hash)
	})
	s.setQueueID(position)
	s.readHead() // before the tail can reach anything
	if c.options.VerifyInterval > 0 {
		err := s.loadQuarantined()
		if files, listing := listSegments(c.options.FS, queueDir); err == nil {
			s.findUnsettled(files)
			err = listing
		}
		if err != nil {
			s.stop()
			return nil, errors.CombineErrors(errors.Wrap(err, "list the queue"), s.queue.Close())
		}
	}
	return s, nil
}

// start starts the goroutines.
func (s *store) start() {
	s.running.Go(func() { s.runTail(s.alive) })
	s.running.Go(func() { s.runHead(s.alive) })
	if s.options.VerifyInterval > 0 {
		s.running.Go(func() { s.runVerify(s.alive) })
	}
	if s.options.SweepInterval > 0 {
		s.running.Go(func() { s.runSweep(s.alive) })
	}
	if s.options.ScrubInterval > 0 {
		s.running.Go(func() { s.runScrub(s.alive) })
	}
}

// leaveQueue stops the goroutines and closes the queue. The index stays open.
func (s *store) leaveQueue() error {
	s.stop()
	s.running.Wait()
	return s.queue.Close()
}

// close closes queue and index. Later operations fail with ErrClosed.
func (s *store) close() error { return errors.CombineErrors(s.leaveQueue(), s.index.Close()) }

// get is Collection.Get. It returns a document in a codec of accept in its stored form and
// reports that.
func (s *store) get(ctx context.Context, dst, id []byte, accept queue.CodecSet, trace stages) (_ []byte, asStored bool, _ error) {
	if !validIDBytes(len(id)) {
		return dst, false, s.answer(ErrBadID, queue.Address{})
	}
	g := s.gap.Load() // load it before the lookup: an entry that the tail applies later counts as read
	end := trace.begin(StageIndex)
	entry, err := s.lookUp(id)
	end()
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return dst, false, s.answer(absence(noEntry, g), queue.Address{})
	case err != nil:
		return dst, false, s.answer(err, queue.Address{})
	}
	if accept != 0 {
		if err := boxcarrpc.Reserve(ctx, int(entry.storedBytes)); err != nil {
			return dst, false, err
		}
	}
	if s.options.Cache != nil {
		defer trace.begin(StageMemcached)()
		return s.getCached(dst, id, entry, accept)
	}
	end = trace.begin(StageSegment)
	result, asStored, err := s.fetch(dst, id, entry, accept)
	end()
	return result, asStored, err
}

// lookUp returns the index entry of an id, lsm.ErrNotFound if there is none, or an error of
// indexError.
func (s *store) lookUp(id []byte) (indexEntry, error) {
	var buffer [indexEntryBytes]byte
	return parseLookUp(s.index.Get(buffer[:0], id))
}

// lookUpVerified is lookUp that also verifies the checksum of the entry's block. It takes
// about half a microsecond longer.
func (s *store) lookUpVerified(id []byte) (indexEntry, error) {
	var buffer [indexEntryBytes]byte
	return parseLookUp(s.index.GetVerified(buffer[:0], id))
}

func parseLookUp(value []byte, err error) (indexEntry, error) {
	if err != nil {
		return indexEntry{}, indexError(err)
	}
	entry, err := decodeIndexEntry(value)
	return entry, indexError(err)
}

// fetch appends the document of an index entry to dst, as get does. If the id was
// overwritten after the entry was read, it returns the previous version: the document at an
// address never changes.
func (s *store) fetch(dst, id []byte, entry indexEntry, accept queue.CodecSet) (_ []byte, asStored bool, _ error) {
	if entry.expiry != 0 && entry.expired(s.options.Now()) {
		return s.fetchCurrent(dst, id, entry, accept, nil)
	}
	result, asStored, err := s.queue.StoredFor(dst, id, entry.address, accept)
	if err == nil {
		s.collection.gets.found.Add(1)
		return result, asStored, nil
	}
	return s.fetchOther(dst, id, entry, accept, err)
}

// fetchOther is fetch for an entry whose address the queue failed to read with err.
func (s *store) fetchOther(dst, id []byte, entry indexEntry, accept queue.CodecSet, err error) (_ []byte, asStored bool, _ error) {
	var gone *queue.GoneError
	if errors.As(err, &gone) || errors.Is(err, queue.ErrDeleted) {
		return s.fetchCurrent(dst, id, entry, accept, gone)
	}
	return dst, false, s.answer(err, entry.address)
}

// fetchCurrent is fetch for an entry without a document: it has expired, its address holds
// a delete, or compaction has left it out (gone). It looks up and verifies the current
// entry of the id, because a newer entry may have a document, and a damaged entry must not
// hide it.
func (s *store) fetchCurrent(dst, id []byte, entry indexEntry, accept queue.CodecSet, gone *queue.GoneError) (_ []byte, asStored bool, _ error) {
	position := s.tailState().position
	g := s.gap.Load() // before the lookup, as in get
	present, err := s.lookUpVerified(id)
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		err = absence(noEntry, g)
	case err != nil:
	case present != entry:
		return s.fetch(dst, id, present, accept)
	case gone != nil && !isSettled(gone, position):
		err = absence(notSettled, g)
	default:
		err = absence(noDocument, g)
	}
	return dst, false, s.answer(err, entry.address)
}

// isSettled reports whether an index that has followed the queue to a position includes
// everything because of which compaction left out a document.
func isSettled(gone *queue.GoneError, position queue.Position) bool {
	return position.Queue == gone.Settled.Queue && position.Next.Compare(gone.Settled.Next) >= 0
}

// dictionary returns the dictionary with the hash, ErrUnavailable if no segment here holds
// it.
func (s *store) dictionary(hash queue.DictionaryHash) ([]byte, error) {
	content, err := s.queue.Dictionary(nil, hash)
	switch {
	case errors.Is(err, queue.ErrClosed):
		return nil, ErrClosed
	case errors.Is(err, queue.ErrNoDictionary):
		return nil, unavailable(err)
	}
	return content, err
}

// setQueueID records the id of the queue, unless it is known or the position has none.
func (s *store) setQueueID(p queue.Position) {
	if s.queueID.Load() == nil && p.Queue != [16]byte{} {
		s.queueID.Store(&p.Queue)
		s.queue.Bind(p.Queue)
	}
}

// validIDBytes reports whether an id may have n bytes. The empty key of the index holds the
// position.
func validIDBytes(n int) bool { return n > 0 && n <= queue.MaxIDBytes }

// isWithdrawn reports whether the queue states that it does not hold the document: a repair
// recorded it as lost, or it was truncated and the index has not followed yet. The files
// are sound, so this is not a fault.
func isWithdrawn(err error) bool {
	var lost *queue.LostError
	return errors.As(err, &lost) || errors.Is(err, queue.ErrTruncated)
}

// unavailable returns an error that matches ErrUnavailable and reason, with errors.Is of
// the standard library, too.
func unavailable(reason error) error { return fmt.Errorf("%w: %w", ErrUnavailable, reason) }

// errIndex is matched by every error of reading the index.
var errIndex = errors.New("docservice: reading the index failed")

// indexError makes an error of the index match errIndex, unless it is an answer: for any
// reason, the index cannot decide the id.
func indexError(err error) error {
	if err == nil || errors.Is(err, lsm.ErrNotFound) || errors.Is(err, lsm.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", errIndex, err)
}

// answer converts an error of index or queue to one of this package, counts it, and records
// the fault behind it. at is the address that was read, if any.
func (s *store) answer(err error, at queue.Address) error {
	switch {
	case errors.Is(err, ErrNotFound):
		s.collection.gets.notFound.Add(1)
		return ErrNotFound
	case errors.Is(err, ErrUnavailable): // absence
		s.collection.gets.unavailable.Add(1)
		return err
	case errors.Is(err, errIndex), errors.Is(err, queue.ErrUnavailable):
		// If the index cannot be read, the id is unavailable as well: another server may
		// have the document.
		s.collection.gets.unavailable.Add(1)
		if !isWithdrawn(err) {
			s.recordFault(err, at)
		}
		return unavailable(err)
	case errors.Is(err, lsm.ErrClosed), errors.Is(err, queue.ErrClosed):
		return ErrClosed
	}
	s.collection.gets.failed.Add(1)
	return err
}
