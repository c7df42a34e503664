package peers

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/internal/ctxtime"
	"docstore/queue/publish"
)

const (
	// attempts is the number of servers that are asked for a file.
	attempts = 3
	// connectTimeout bounds the wait for a connection.
	connectTimeout = 2 * time.Second
	// stallTimeout bounds the time in which no byte of a transfer arrives.
	stallTimeout = 30 * time.Second
	// minRate is the rate, in bytes per second, that the deadline of a transfer assumes.
	minRate = 1 << 20

	// A server is not asked for a time after it was busy, after it failed, and after it has
	// sent wrong bytes.
	busyPause    = time.Second
	failurePause = 10 * time.Second
	damagedPause = 10 * time.Minute

	// knownTimeout bounds the wait of the first transfers for the list of servers.
	knownTimeout = 3 * time.Second
	// idleTime is the time after which an unused connection is closed.
	idleTime = time.Minute
	// watchPause is the pause before a failed source of servers is watched again.
	watchPause = 5 * time.Second
)

// ClientOptions configure a Client. Nil and zero values are the defaults.
type ClientOptions struct {
	// Pool configures the connections: credentials, logger and zone. The default is plain text.
	Pool boxcarrpc.PoolOptions
	// Self is the address of this server, which is not asked. The default is empty.
	Self string
}

// Client fetches files from the other servers. It connects to a server when it asks it, and
// closes the connection after a minute without use.
type Client struct {
	source  discovery.Source
	options ClientOptions
	logger  *slog.Logger
	stop    context.CancelFunc
	running sync.WaitGroup

	received, damaged atomic.Uint64
	// known is closed when the servers are known for the first time, or after knownTimeout.
	known     chan struct{}
	knownOnce sync.Once

	mu struct {
		sync.Mutex
		peers map[string]*peer // by address
	}
}

// peer is another server.
type peer struct {
	address string
	zone    string // empty: unknown
	// Guarded by Client.mu:
	pool  *boxcarrpc.Pool // nil: not connected
	users int
	used  time.Time // the last time
	until time.Time // it is not asked before
}

// ClientStats are the statistics of a Client.
type ClientStats struct {
	Peers         int    // known servers
	ReceivedBytes uint64 // including those of failed transfers
	Damaged       uint64 // files with wrong bytes
}

// NewClient returns a Client of the servers of a source.
func NewClient(source discovery.Source, opts *ClientOptions) *Client {
	c := &Client{source: source, known: make(chan struct{})}
	if opts != nil {
		c.options = *opts
	}
	if c.logger = c.options.Pool.Logger; c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	c.options.Pool.Size = 1 // streams take no slot
	c.mu.peers = make(map[string]*peer)
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.running.Go(func() { c.watch(ctx) })
	c.running.Go(func() { c.closeIdle(ctx) })
	c.running.Go(func() {
		ctxtime.Sleep(ctx, knownTimeout)
		c.nowKnown()
	})
	return c
}

// Stats returns the current statistics.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ClientStats{Peers: len(c.mu.peers), ReceivedBytes: c.received.Load(), Damaged: c.damaged.Load()}
}

// Close closes the connections; transfers in progress fail.
func (c *Client) Close() error {
	c.stop()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for _, p := range c.mu.peers {
		if p.pool != nil {
			err = errors.CombineErrors(err, p.pool.Close())
			p.pool = nil
		}
	}
	c.mu.peers = nil
	return err
}

// watch keeps the list of servers current.
func (c *Client) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.source.Watch(ctx, c.setServers)
		if ctx.Err() == nil {
			c.logger.Warn("finding the peers failed; the last known ones are used", "error", err)
			ctxtime.Sleep(ctx, watchPause)
		}
	}
}

func (c *Client) nowKnown() { c.knownOnce.Do(func() { close(c.known) }) }

func (c *Client) setServers(s discovery.Snapshot) {
	defer c.nowKnown()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.mu.peers
	c.mu.peers = make(map[string]*peer, len(s.Servers))
	for _, server := range s.Servers {
		if server.Address == c.options.Self {
			continue
		}
		p := before[server.Address]
		if p == nil {
			p = &peer{address: server.Address}
		}
		p.zone = server.Zone
		c.mu.peers[p.address] = p
		delete(before, p.address)
	}
	for _, p := range before {
		p.closeLocked()
	}
}

// closeLocked closes the connection, which fails its transfers.
func (p *peer) closeLocked() {
	if p.pool != nil {
		_ = p.pool.Close() // it has no calls
		p.pool = nil
	}
}

// closeIdle closes connections that are not used.
func (c *Client) closeIdle(ctx context.Context) {
	for ctxtime.Sleep(ctx, idleTime/2) {
		c.mu.Lock()
		for _, p := range c.mu.peers {
			if p.users == 0 && time.Since(p.used) >= idleTime {
				p.closeLocked()
			}
		}
		c.mu.Unlock()
	}
}

// Source returns the files of a collection.
func (c *Client) Source(collection string) publish.Source { return source{c, collection} }

type source struct {
	*Client
	collection string
}

var (
	errNoPeer = errors.New("peers: no other server has the file")
	errLocal  = errors.New("peers: storing the file failed")
)

// Fetch implements publish.Source.
func (s source) Fetch(ctx context.Context, f publish.File, store func(io.Reader) error) error {
	select {
	case <-s.known:
	case <-ctx.Done():
		return ctx.Err()
	}
	var asked []*peer
	for len(asked) < attempts {
		p, pool, err := s.pick(asked)
		if err != nil {
			return err
		}
		asked = append(asked, p)
		err = s.fetchFrom(ctx, pool, f, store)
		s.release(p, pauseAfter(err))
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, errLocal):
			return err
		case errors.Is(err, publish.ErrCorrupt):
			s.damaged.Add(1)
			s.logger.Error("a peer sent a damaged file; it is not asked for some time", "peer", p.address, "collection", s.collection, "file", f.Name, "pause", damagedPause, "error", err)
		}
	}
	return errNoPeer
}

// pauseAfter returns for how long a server is not asked after a transfer.
func pauseAfter(err error) time.Duration {
	switch {
	case err == nil, errors.Is(err, errLocal), boxcarrpc.CodeOf(err) == boxcarrpc.CodeNotFound:
		return 0
	case errors.Is(err, publish.ErrCorrupt):
		return damagedPause
	case boxcarrpc.CodeOf(err) == boxcarrpc.CodeResourceExhausted:
		return busyPause
	}
	return failurePause
}

// pick returns a random server that was not asked, if possible one of the zone of the pool,
// and its connections.
func (c *Client) pick(asked []*peer) (*peer, *boxcarrpc.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var candidates, near []*peer
	for _, p := range c.mu.peers {
		if !slices.Contains(asked, p) && !now.Before(p.until) {
			candidates = append(candidates, p)
			if zone := c.options.Pool.Zone; zone != "" && p.zone == zone {
				near = append(near, p)
			}
		}
	}
	if len(near) > 0 {
		candidates = near
	}
	if len(candidates) == 0 {
		return nil, nil, errNoPeer
	}
	p := candidates[rand.IntN(len(candidates))]
	if p.pool == nil {
		options := c.options.Pool
		pool, err := boxcarrpc.NewPool(discovery.Static(p.address), &options)
		if err != nil {
			return nil, nil, err
		}
		p.pool = pool
	}
	p.users++
	return p, p.pool, nil
}

// release ends the use of a server, which is not asked during pause.
func (c *Client) release(p *peer, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.users--
	p.used = time.Now()
	if until := p.used.Add(pause); pause > 0 && until.After(p.until) {
		p.until = until
	}
}

// fetchFrom passes the copy of one server to store. The error matches errLocal if neither
// the server nor the copy is at fault.
func (s source) fetchFrom(ctx context.Context, pool *boxcarrpc.Pool, f publish.File, store func(io.Reader) error) error {
	deadline := min(stallTimeout+time.Duration(f.Size/minRate)*time.Second, MaxTransferTime)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	request := boxcarrpc.Metadata(nil).Append(keyCollection, s.collection).Append(keyFile, f.Name).
		Append(keySize, strconv.FormatInt(f.Size, 10)).Append(keyFooter, hex.EncodeToString(f.Footer[:]))
	opening := time.AfterFunc(connectTimeout, cancel)
	stream, err := pool.Stream(boxcarrpc.WithBatch(ctx), Method, request)
	opening.Stop()
	if err != nil {
		return err
	}
	defer stream.Close()
	body := &body{stream: stream, left: f.Size, received: &s.received, stall: time.AfterFunc(stallTimeout, cancel)}
	defer body.stall.Stop()
	// Until the first bytes arrive nothing is stored.
	if err := body.fill(); err != nil {
		return err
	}
	err = store(body)
	switch {
	case body.failure != nil:
		return body.failure
	case err != nil && !errors.Is(err, publish.ErrCorrupt):
		return errors.Mark(err, errLocal)
	}
	return err
}

// body reads the messages of a stream.
type body struct {
	stream   *boxcarrpc.ClientStream
	buffer   []byte // the last message
	rest     []byte // of it
	left     int64  // bytes that the file may still have
	received *atomic.Uint64
	stall    *time.Timer
	failure  error // of the stream
}

// fill receives the next message. It returns io.EOF after the last.
func (b *body) fill() error {
	var err error
	b.buffer, err = b.stream.Receive(b.buffer[:0])
	if err != nil {
		return err
	}
	b.stall.Reset(stallTimeout)
	b.received.Add(uint64(len(b.buffer)))
	b.rest = b.buffer
	return nil
}

// Read implements io.Reader. It passes at most one byte more than the file has.
func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		switch err := b.fill(); {
		case errors.Is(err, io.EOF):
			return 0, io.EOF
		case err != nil:
			b.failure = err
			return 0, err
		}
	}
	if b.left < 0 {
		return 0, io.EOF // longer than the file: the digest is wrong
	}
	n := copy(p[:min(int64(len(p)), b.left+1)], b.rest)
	b.rest, b.left = b.rest[n:], b.left-int64(n)
	return n, nil
}
