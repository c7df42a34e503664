package collection

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// store is one queue and its index, which a collection serves. While a replacement is
// built, the collection has two; see replacement.go. Each part owns its state; the parts
// share the resources of shared and the state of health.
type store struct {
	*shared
	reader   *reader   // answers requests
	follower *follower // the tail: applies the queue to the index
	verifier *verifier // the background pass over the segments
	sweeper  *sweeper  // removes expired entries
	settler  *settler  // removes stale entries
	scrubber *scrubber // verifies the index

	stop    context.CancelFunc
	running sync.WaitGroup // the goroutines of the parts
}

// shared holds the resources that the parts of a store share.
type shared struct {
	collection *Collection
	number     indexNumber
	queueDir   string
	options    *Options
	logger     *slog.Logger
	index      *lsm.DB
	queue      *queue.Reader
	health     *health
	// queueID is the id of the queue, nil until it is known.
	queueID atomic.Pointer[[16]byte]

	// indexing is held by the follower, the sweeper and the settler while they write to the
	// index. The others must not remove an entry that the follower has just written.
	indexing struct {
		sync.Mutex
		// state is that of the index. Runs are added to its unsettled before they are written.
		state indexState
		marks uint64 // number of times that runs were added
		// soonest is at most the earliest expiry of all entries in the index.
		soonest expiries
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
		MergeRate:     c.options.MergeRate,
		Obsolete:      c.obsolete(),
	})
	if err != nil {
		return nil, errors.Wrap(err, "open the index")
	}
	state, err := readIndexState(index)
	if err != nil {
		return nil, errors.CombineErrors(errors.Wrapf(err, "index %s", path), index.Close())
	}
	if state.position.IsZero() {
		state.position.Queue = id
	}
	s, err := c.newStore(number, index, queueDir, state)
	if err != nil {
		return nil, errors.CombineErrors(err, index.Close())
	}
	return s, nil
}

// newStore makes a store from an open index with a state. On error the caller still owns the
// index.
func (c *Collection) newStore(number indexNumber, index *lsm.DB, queueDir string, state indexState) (_ *store, err error) {
	alive, stop := context.WithCancel(c.alive)
	common := &shared{
		collection: c, number: number, queueDir: queueDir, options: &c.options, logger: c.logger,
		index: index, health: newHealth(alive, &c.options, &c.behind, state.position),
	}
	common.indexing.soonest = 1 // unknown: makes the first pass run
	common.indexing.state = state
	s := &store{shared: common, stop: stop}
	s.reader = &reader{shared: common}
	s.settler = newSettler(common, s.reader)
	s.reader.settler = s.settler
	s.follower = &follower{shared: common, reader: s.reader, settler: s.settler}
	s.verifier = newVerifier(common, s.follower)
	s.sweeper = &sweeper{shared: common, reader: s.reader}
	s.scrubber = &scrubber{shared: common}
	s.queue, err = queue.OpenReader(queueDir, &queue.ReaderOptions{
		FS:           c.options.FS,
		PollInterval: c.options.PollInterval,
		Logger:       c.logger,
		OnCaughtUp:   s.follower.caughtUp,
		OnRewrite:    s.settler.enter,
		Decoders:     c.options.Decoders,
	})
	if err != nil {
		s.stop()
		return nil, errors.Wrap(err, "open the queue")
	}
	s.reader.decoders = stored.NewDecoders(c.options.Decoders, func(_ context.Context, hash codec.DictionaryHash) ([]byte, error) {
		return s.queue.Dictionary(nil, hash)
	})
	s.setQueueID(state.position)
	s.follower.readHead() // before the tail can reach anything
	err = cmp.Or(s.settler.resume(), s.settler.refresh())
	if err == nil && c.options.VerifyInterval > 0 {
		err = s.verifier.loadQuarantined()
	}
	if err != nil {
		s.stop()
		return nil, errors.CombineErrors(errors.Wrap(err, "list the queue"), s.queue.Close())
	}
	return s, nil
}

// indexState returns the state of the index.
func (s *shared) indexState() indexState {
	s.indexing.Lock()
	defer s.indexing.Unlock()
	return s.indexing.state
}

// start starts the goroutines.
func (s *store) start() {
	s.running.Go(func() { s.follower.runTail(s.health.alive) })
	s.running.Go(func() { s.follower.runHead(s.health.alive) })
	s.running.Go(func() { s.settler.runSettle(s.health.alive) })
	if s.options.VerifyInterval > 0 {
		s.running.Go(func() { s.verifier.runVerify(s.health.alive) })
	}
	if s.options.SweepInterval > 0 {
		s.running.Go(func() { s.sweeper.runSweep(s.health.alive) })
	}
	if s.options.ScrubInterval > 0 {
		s.running.Go(func() { s.scrubber.runScrub(s.health.alive) })
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

// setQueueID records the id of the queue, unless it is known or the position has none.
func (s *shared) setQueueID(p queue.Position) {
	if s.queueID.Load() == nil && p.Queue != [16]byte{} {
		s.queueID.Store(&p.Queue)
		s.queue.Bind(p.Queue)
	}
}
