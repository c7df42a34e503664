package lsm

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"
)

// maxScratchBytes bounds the buffer that single writes keep between commits.
const maxScratchBytes = 1 << 20

// commitEnv is the memtable and log that a committer writes to. All methods except sync
// and flush are called under the committer's lock, so by one goroutine at a time.
type commitEnv interface {
	// prepare makes space for a batch in memtable and log. errStalled means that the
	// committer must wait for progress and call prepare again; a delay means that it
	// must wait that long and call prepare again.
	prepare(dataBytes, count int) (delay time.Duration, err error)
	// write appends a batch, whose first write has the given number, to the log.
	write(c *commit, first uint64) error
	// apply adds the batch to the memtable. Readers do not see it yet.
	apply(c *commit, first uint64) error
	// fail records that the log or memtable is unusable, and returns the error for the
	// caller of the failed operation, which matches errLogFailed.
	fail(err error) error
	// sync makes all writes in the logs durable. errOldLog and errLogFailed mean that
	// only flush can make them durable. It runs concurrently with the other methods,
	// but not with itself.
	sync() error
	// flush makes all visible writes durable in tables.
	flush() error
}

var (
	// errStalled: writers must wait until a flush has made progress.
	errStalled = errors.New("lsm: writes wait for a flush")
	// errLogFailed: an append or sync of a log failed.
	errLogFailed = errors.New("lsm: a log failed")
	// errOldLog: a log existed when the store was opened. A failed sync of it in the
	// process that wrote it is not reported to other processes (internal/vfs).
	errOldLog = errors.New("lsm: the durability of a log of an earlier process is unknown")
)

// committer serializes writes. The steps of a commit:
//
//	with mu:
//	  wait until memtable and log have space      env.prepare
//	  append the batch to the log                 env.write
//	  add the batch to the memtable               env.apply
//	  publish the last sequence number            visible
//	without mu, if commits are durable:
//	  wait until a sync covers the batch          sync
//
// Invariants:
//
//   - Batches are in the log, and become visible, in the order of their sequence
//     numbers, which are consecutive. A reader sees a batch completely or not at all,
//     possibly before it is durable.
//   - After a failed write, sync or apply the environment accepts no batch until it has
//     recovered: env.prepare stalls or fails.
//   - A sync does not need mu: concurrent commits append meanwhile, and the next sync
//     covers all of them (group commit).
//   - After close returns, no batch is committed and no sync begins.
//
// Lock order: syncing, mu.
type committer struct {
	env      commitEnv
	durable  bool // a commit returns after a sync
	counters *counters
	closed   chan struct{} // closed by close

	// visible is the sequence number up to which readers see writes. It changes under mu,
	// after the whole batch is in the memtable.
	visible atomic.Uint64

	syncing struct {
		sync.Mutex
		through uint64 // writes up to this sequence number are durable
	}
	mu struct {
		sync.Mutex
		progress sync.Cond // a flush made progress or failed, or the committer was closed
		err      error     // why no batch is accepted any more
		refused  error     // why the last batch was not written, nil if it was
		spare    *commit   // memory for the next commit, or nil

		writes, bytes uint64 // committed
	}
}

// commit is a batch being committed.
type commit struct {
	data  []byte // encoded
	count int

	// one is the only write of the batch and hash the hash of its key, if one.kind is
	// set. They save decoding the batch.
	one    op
	hash   uint32
	buffer Batch // memory of a single write
}

// rejected returns the reason why no batch is accepted, or nil.
func (c *committer) rejected() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// refusal returns why the last batch was not written, nil if it was.
func (c *committer) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.refused
}

// init prepares an empty committer.
func (c *committer) init(env commitEnv, durable bool, counters *counters) {
	c.env, c.durable, c.counters = env, durable, counters
	c.closed = make(chan struct{})
	c.mu.progress.L = &c.mu.Mutex
}

// commitBatch commits a batch. See DB.Apply for the state after an error.
func (c *committer) commitBatch(b *Batch) error {
	c.mu.Lock()
	w := c.take()
	w.count, w.one.kind = b.count, 0
	if b.count > 0 {
		w.data = b.encoded()
	}
	return c.finish(w, c.run(w))
}

// commitOne commits a single write, whose key has the given hash.
func (c *committer) commitOne(o op, hash uint32) error {
	c.mu.Lock()
	w := c.take()
	err := w.encode(o, hash)
	if err == nil {
		err = c.run(w)
	}
	return c.finish(w, err)
}

// take returns memory for a commit. While it runs it may release mu and read the batch
// afterwards, so no other commit may use this memory. Called under mu.
func (c *committer) take() *commit {
	w := c.mu.spare
	if c.mu.spare = nil; w == nil {
		w = new(commit)
	}
	return w
}

// finish releases the memory of a commit, unlocks mu, and waits until the batch has the
// configured durability.
func (c *committer) finish(w *commit, err error) error {
	w.data = nil
	if cap(w.buffer.data) <= maxScratchBytes {
		c.mu.spare = w
	}
	last := c.visible.Load()
	c.mu.Unlock()
	if err != nil || !c.durable {
		return err
	}
	return c.sync(last)
}

// encode makes w a batch of a single write. It copies key and value.
func (w *commit) encode(o op, hash uint32) error {
	w.buffer.Reset()
	if err := w.buffer.add(o); err != nil {
		return err
	}
	w.data, w.count, w.hash = w.buffer.encoded(), 1, hash
	key := len(w.data) - len(o.key) - len(o.value)
	value := key + len(o.key)
	w.one = op{o.kind, w.data[key:value], w.data[value:]}
	return nil
}

// run performs the steps of a commit that need mu. Called under mu, which it releases
// while it waits.
func (c *committer) run(w *commit) error {
	if c.mu.err != nil || w.count == 0 {
		return c.mu.err
	}
	err := c.await(func() (time.Duration, error) { return c.env.prepare(len(w.data), w.count) })
	if c.mu.refused = err; err != nil {
		return err
	}
	first := c.visible.Load() + 1
	if err := c.env.write(w, first); err != nil {
		return c.env.fail(err)
	}
	if err := c.env.apply(w, first); err != nil {
		return c.env.fail(err)
	}
	c.mu.writes += uint64(w.count)
	c.mu.bytes += uint64(len(w.data))
	c.visible.Store(first + uint64(w.count) - 1)
	return nil
}

// await calls fn until it neither stalls nor asks for a delay. Called under mu, which it
// releases while it waits.
func (c *committer) await(fn func() (delay time.Duration, err error)) error {
	for {
		if c.mu.err != nil {
			return c.mu.err
		}
		delay, err := fn()
		switch {
		case err == nil && delay == 0:
			return nil
		case err == nil:
			c.delay(delay)
		case errors.Is(err, errStalled):
			start := time.Now()
			c.mu.progress.Wait()
			c.counters.stalls.Add(1)
			c.counters.stallNanos.Add(uint64(time.Since(start)))
		default:
			return err
		}
	}
}

// delay releases mu for some time.
func (c *committer) delay(d time.Duration) {
	c.mu.Unlock()
	defer c.mu.Lock()
	start := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
	c.counters.delays.Add(1)
	c.counters.delayNanos.Add(uint64(time.Since(start)))
}

// exclusive runs fn between commits, again after progress if it returns errStalled.
func (c *committer) exclusive(fn func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.await(func() (time.Duration, error) { return 0, fn() })
}

// advance runs fn between commits, also after close, and wakes stalled commits.
func (c *committer) advance(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
	c.mu.progress.Broadcast()
}

// sync makes the writes up to a sequence number durable. If the log cannot be synced,
// a flush makes them durable.
func (c *committer) sync(through uint64) error {
	failed := c.groupSync(through)
	if !errors.Is(failed, errLogFailed) && !errors.Is(failed, errOldLog) {
		return failed
	}
	if err := c.env.flush(); err != nil {
		return errors.CombineErrors(err, failed)
	}
	return nil
}

// groupSync syncs the logs, unless another call has made the writes durable: of several
// waiting callers one syncs for all. It does not wait for commits.
func (c *committer) groupSync(sequence uint64) error {
	start := time.Now()
	c.syncing.Lock()
	defer c.syncing.Unlock()
	if c.syncing.through >= sequence {
		return nil
	}
	select {
	case <-c.closed:
		return ErrClosed
	default:
	}
	// The sequence number comes first: all these writes are in the logs that sync
	// lists after it, or in tables.
	through := c.visible.Load()
	err := c.env.sync()
	switch {
	case errors.Is(err, errLogFailed), errors.Is(err, errOldLog):
		return err
	case err != nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.env.fail(err)
	}
	c.syncing.through = through
	c.counters.syncs.Add(1)
	c.counters.syncNanos.Add(uint64(time.Since(start)))
	return nil
}

// written returns the number of writes committed and their size as encoded.
func (c *committer) written() (writes, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.writes, c.mu.bytes
}

// close makes all later and waiting calls fail with ErrClosed, and waits for the current
// commit and sync.
func (c *committer) close() {
	c.mu.Lock()
	c.mu.err = ErrClosed
	close(c.closed)
	c.mu.progress.Broadcast()
	c.mu.Unlock()
	c.syncing.Lock() // the current sync has ended
	defer c.syncing.Unlock()
}
