package docservice

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

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

	// following: the tail has caught up once and is not stopped by a fault, so
	// what the index does not hold does not exist.
	following atomic.Bool
	recheck   chan struct{} // a fetch has found new damage: the pass looks at once

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
func (s *store) get(dst, id []byte, take queue.CodecSet, tell stages) (_ []byte, asStored bool, _ error) {
	if !validIDBytes(len(id)) {
		return dst, false, s.answer(ErrBadID, queue.Address{})
	}
	var buffer [indexEntryBytes]byte
	followed := s.following.Load() // before the look-up: see absent
	end := tell.begin(StageIndex)
	value, err := s.index.Get(buffer[:0], id)
	end()
	if err != nil {
		return dst, false, s.answer(absent(err, followed), queue.Address{})
	}
	entry, err := decodeIndexEntry(value)
	if err != nil {
		return dst, false, s.answer(err, queue.Address{})
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

// fetch appends the document of an index entry to dst, as get does. The id may
// have been overwritten since the entry was read: an address is for ever, so
// that gives the version before.
func (s *store) fetch(dst, id []byte, entry indexEntry, take queue.CodecSet) (_ []byte, asStored bool, _ error) {
	if entry.expiry != 0 && entry.expired(s.options.Now()) {
		return dst, false, s.answer(ErrNotFound, entry.address)
	}
	result, asStored, err := s.queue.StoredFor(dst, id, entry.address, take)
	if err == nil {
		s.collection.gets.found.Add(1)
		return result, asStored, nil
	}
	return s.fetchOther(dst, id, entry, take, err)
}

// fetchOther is fetch where the document is not to be had at its address, for the
// reason that the queue has given.
func (s *store) fetchOther(dst, id []byte, entry indexEntry, take queue.CodecSet, err error) (_ []byte, asStored bool, _ error) {
	var gone *queue.GoneError
	if !errors.As(err, &gone) {
		return dst, false, s.answer(err, entry.address)
	}
	newer, err := s.superseding(id, entry, gone)
	if err != nil {
		return dst, false, s.answer(err, entry.address)
	}
	return s.fetch(dst, id, newer, take)
}

// superseding returns the index entry that has taken the place of one whose
// document compaction has left out. ErrNotFound: none has, and so the document
// was deleted. Until the index has followed the queue to what superseded it,
// nobody can tell, and the error is gone itself.
func (s *store) superseding(id []byte, entry indexEntry, gone *queue.GoneError) (indexEntry, error) {
	s.mu.Lock()
	position := s.mu.tail.position
	s.mu.Unlock()
	var buffer [indexEntryBytes]byte
	followed := s.following.Load()
	value, err := s.index.Get(buffer[:0], id)
	if err != nil {
		return entry, absent(err, followed)
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

// isLost tells whether a repair of the queue has noted the document as lost: no
// other copy is going to come, so that is no fault of this one.
func isLost(err error) bool {
	var lost *queue.LostError
	return errors.As(err, &lost)
}

// errNotRead is the answer for an id that is not in the index, while what is
// still to be read of the queue may hold it.
var errNotRead = unavailable(errors.New("the queue has not been read to its end"))

// absent turns the index's error for an id that it does not hold into what that means.
// followed is whether the queue had been read to its end before the index was asked:
// asked afterwards, an entry that came in between would pass for one that is not there.
func absent(err error, followed bool) error {
	switch {
	case !errors.Is(err, lsm.ErrNotFound):
		return err
	case followed:
		return ErrNotFound
	}
	return errNotRead
}

// unavailable makes an error that says why a document cannot be had match
// ErrUnavailable, for the standard library's errors.Is too.
func unavailable(reason error) error { return fmt.Errorf("%w: %w", ErrUnavailable, reason) }

// answer turns an error of index or queue into one of this package's, counts
// it, and records the fault that may be behind it. at is the address that was
// to be read, if it came to that.
func (s *store) answer(err error, at queue.Address) error {
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, queue.ErrDeleted):
		s.collection.gets.notFound.Add(1)
		return ErrNotFound
	case errors.Is(err, ErrUnavailable): // absent, superseding
		s.collection.gets.unavailable.Add(1)
		return err
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, lsm.ErrCorrupt), errors.Is(err, errIndexEntry):
		// Where the index is damaged the address is not known, but for the
		// caller it is the same: another server may have the document.
		s.collection.gets.unavailable.Add(1)
		if !isLost(err) {
			s.recordFault(err, at)
		}
		return unavailable(err)
	case errors.Is(err, lsm.ErrClosed), errors.Is(err, queue.ErrClosed):
		return ErrClosed
	}
	s.collection.gets.failed.Add(1)
	return err
}
