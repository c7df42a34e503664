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

// store is one queue and its index: what a collection answers from. One that is to
// take its place is made beside it; see succession.go.
type store struct {
	collection *Collection
	number     indexNumber
	queueDir   string
	options    *CollectionOptions
	logger     *slog.Logger
	index      *lsm.DB
	queue      *queue.Reader
	verified   *verifiedFiles // of the background pass, which alone uses it

	// queueID is the id of the queue once it is known.
	queueID   atomic.Pointer[[16]byte]
	unsettled atomic.Pointer[unsettled]
	// rewrites is what the background pass knows about the files of rewrites.
	rewrites map[string]knownRewrite
	// openVerified are the open files that the background pass has read, which alone
	// uses it.
	openVerified map[segmentKey]vfs.FileID
	// decoders decode documents in their stored form for callers that cannot.
	decoders *queue.Decoders

	alive   context.Context // until it is stopped
	stop    context.CancelFunc
	running sync.WaitGroup // the tail, the background pass, the sweep and the scrub

	// gap is why the index may lack an id that the queue holds; nil: it lacks none.
	// stateChanged stores it.
	gap     atomic.Pointer[gap]
	recheck chan struct{} // a fetch has found new damage: the pass looks at once

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
		// reached: the tail has read the queue to its end since it last stopped.
		reached bool
		// stoppedBy is the error behind the fault that stops the tail, nil if it runs.
		stoppedBy error
		head      headState
		// suspect are the paths of files in which a fetch has found damage since
		// the background pass last looked.
		suspect map[string]bool
		// awaited are files that were set aside and have not come again.
		awaited map[segmentKey]segmentFile
		// changed is closed, and replaced, when tail or faults have changed.
		changed chan struct{}
	}
}

// openStore opens an index, made if need be, for the queue in queueDir. A new index
// is for the queue with the id, or where that is zero for whichever is there.
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
		return nil, errors.Wrap(err, "opening the index")
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

// newStore makes a store of an open index that has followed the queue to the
// position. On an error the index stays the caller's.
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
	s.indexing.soonest = 1 // nobody knows: the first pass finds out
	s.queue, err = queue.OpenReader(queueDir, &queue.ReaderOptions{
		FS:           c.options.FS,
		PollInterval: c.options.PollInterval,
		Logger:       c.logger,
		OnCaughtUp:   s.caughtUp,
		Decoders:     c.options.Decoders,
	})
	if err != nil {
		s.stop()
		return nil, errors.Wrap(err, "opening the queue")
	}
	s.decoders = queue.NewDecoders(c.options.Decoders, func(_ context.Context, hash queue.DictionaryHash) ([]byte, error) {
		return s.queue.Dictionary(nil, hash)
	})
	s.noteQueueID(position)
	s.readHead() // before the tail can reach anything
	if c.options.VerifyInterval > 0 {
		err := s.loadAside()
		if files, listing := listSegments(c.options.FS, queueDir); err == nil {
			s.noteUnsettled(files)
			err = listing
		}
		if err != nil {
			s.stop()
			return nil, errors.CombineErrors(errors.Wrap(err, "listing the queue"), s.queue.Close())
		}
	}
	return s, nil
}

// start starts to follow the queue.
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

// leaveQueue stops to follow the queue and closes it. The index stays open.
func (s *store) leaveQueue() error {
	s.stop()
	s.running.Wait()
	return s.queue.Close()
}

// close closes queue and index. Everything after it fails with ErrClosed.
func (s *store) close() error { return errors.CombineErrors(s.leaveQueue(), s.index.Close()) }

// get is Collection.Get, giving a document that needs no codec but those taken in
// its stored form, which it reports.
func (s *store) get(ctx context.Context, dst, id []byte, take queue.CodecSet, tell stages) (_ []byte, asStored bool, _ error) {
	if !validIDBytes(len(id)) {
		return dst, false, s.answer(ErrBadID, queue.Address{})
	}
	g := s.gap.Load() // before the lookup: an entry that the tail adds after it counts as read
	end := tell.begin(StageIndex)
	entry, err := s.lookUp(id)
	end()
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return dst, false, s.answer(absence(noEntry, g), queue.Address{})
	case err != nil:
		return dst, false, s.answer(err, queue.Address{})
	}
	if take != 0 {
		if err := boxcarrpc.Reserve(ctx, int(entry.storedBytes)); err != nil {
			return dst, false, err
		}
	}
	if s.options.Cache != nil {
		defer tell.begin(StageMemcached)()
		return s.getCached(dst, id, entry, take)
	}
	end = tell.begin(StageSegment)
	result, asStored, err := s.fetch(dst, id, entry, take)
	end()
	return result, asStored, err
}

// lookUp returns the index entry of an id, lsm.ErrNotFound if there is none, or
// another error as of indexError.
func (s *store) lookUp(id []byte) (indexEntry, error) {
	var buffer [indexEntryBytes]byte
	return parseLookUp(s.index.Get(buffer[:0], id))
}

// lookUpVerified is lookUp that verifies the entry again. It costs half a microsecond
// more.
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

// fetch appends the document of an index entry to dst, as get does. If the id has been
// overwritten since the entry was read, that is the previous version: what an address
// names never changes.
func (s *store) fetch(dst, id []byte, entry indexEntry, take queue.CodecSet) (_ []byte, asStored bool, _ error) {
	if entry.expiry != 0 && entry.expired(s.options.Now()) {
		return s.fetchCurrent(dst, id, entry, take, nil)
	}
	result, asStored, err := s.queue.StoredFor(dst, id, entry.address, take)
	if err == nil {
		s.collection.gets.found.Add(1)
		return result, asStored, nil
	}
	return s.fetchOther(dst, id, entry, take, err)
}

// fetchOther is fetch for an entry whose address the queue could not read, with the
// queue's error.
func (s *store) fetchOther(dst, id []byte, entry indexEntry, take queue.CodecSet, err error) (_ []byte, asStored bool, _ error) {
	var gone *queue.GoneError
	if errors.As(err, &gone) || errors.Is(err, queue.ErrDeleted) {
		return s.fetchCurrent(dst, id, entry, take, gone)
	}
	return dst, false, s.answer(err, entry.address)
}

// fetchCurrent is fetch for an entry that has no document: it has expired, or its
// address holds a delete, or compaction has left it out, which is gone. The id's present
// entry is looked up and verified, because a newer one may have a document, and a
// damaged one must not hide it.
func (s *store) fetchCurrent(dst, id []byte, entry indexEntry, take queue.CodecSet, gone *queue.GoneError) (_ []byte, asStored bool, _ error) {
	position := s.tailState().position
	g := s.gap.Load() // before the lookup, as in get
	present, err := s.lookUpVerified(id)
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		err = absence(noEntry, g)
	case err != nil:
	case present != entry:
		return s.fetch(dst, id, present, take)
	case gone != nil && !isSettled(gone, position):
		err = absence(notSettled, g)
	default:
		err = absence(noDocument, g)
	}
	return dst, false, s.answer(err, entry.address)
}

// isSettled reports whether an index that has followed the queue to a position includes
// everything that compaction took into account when it left out a document.
func isSettled(gone *queue.GoneError, position queue.Position) bool {
	return position.Queue == gone.Settled.Queue && position.Next.Compare(gone.Settled.Next) >= 0
}

// dictionary returns the dictionary with the hash, ErrUnavailable where no
// segment here holds it.
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

// noteQueueID takes down which queue this is. A position of none does not tell.
func (s *store) noteQueueID(p queue.Position) {
	if s.queueID.Load() == nil && p.Queue != [16]byte{} {
		s.queueID.Store(&p.Queue)
		s.queue.Bind(p.Queue)
	}
}

// validIDBytes tells whether there can be a document with an id of so many
// bytes. The index's empty key is no id: the position is kept there.
func validIDBytes(n int) bool { return n > 0 && n <= queue.MaxIDBytes }

// isWithdrawn reports whether the queue states that it does not hold the document: a
// repair has noted it as lost, or a truncation took it back and the index has not
// followed yet. The files here are sound, so it is no fault.
func isWithdrawn(err error) bool {
	var lost *queue.LostError
	return errors.As(err, &lost) || errors.Is(err, queue.ErrTruncated)
}

// unavailable makes an error that says why a document cannot be had match
// ErrUnavailable, for the standard library's errors.Is too.
func unavailable(reason error) error { return fmt.Errorf("%w: %w", ErrUnavailable, reason) }

// errIndex is matched by every error that is about reading the index.
var errIndex = errors.New("docservice: the index cannot be read")

// indexError returns an error of the index unchanged if it is an answer, and otherwise
// makes it match errIndex: whatever the reason, the index cannot decide the id.
func indexError(err error) error {
	if err == nil || errors.Is(err, lsm.ErrNotFound) || errors.Is(err, lsm.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", errIndex, err)
}

// answer turns an error of index or queue into one of this package's, counts
// it, and records the fault that may be behind it. at is the address that was
// to be read, if it came to that.
func (s *store) answer(err error, at queue.Address) error {
	switch {
	case errors.Is(err, ErrNotFound):
		s.collection.gets.notFound.Add(1)
		return ErrNotFound
	case errors.Is(err, ErrUnavailable): // absence
		s.collection.gets.unavailable.Add(1)
		return err
	case errors.Is(err, errIndex), errors.Is(err, queue.ErrUnavailable):
		// An index that cannot be read makes an id unavailable as well: another
		// server may have the document.
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
