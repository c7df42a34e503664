package boxcarrpc

import (
	"cmp"
	"context"
	"fmt"

	"docstore/boxcarrpc/core"
)

// Stream opens a stream to the server that has the fewest of the pool's, among
// equals the one that got none for longest; servers that are silent or refuse
// come last. It takes no slot. metadata goes with it.
//
// It does not wait for the server: whether that has taken the stream is told by
// Receive. It waits within ctx for a first connection, as Call does. ctx is of
// the stream as a whole: its deadline travels with it, without one there is
// none. More than MaxStreams fail with ErrPoolBusy. A stream is never tried
// again by the pool; an [Error] with Processed false says that the caller may.
func (p *Pool) Stream(ctx context.Context, method string, metadata Metadata) (*ClientStream, error) {
	if p.opener != nil {
		return p.opener(ctx, method, metadata)
	}
	return p.openStream(ctx, method, metadata)
}

// openStream is Stream without interceptors.
func (p *Pool) openStream(ctx context.Context, method string, metadata Metadata) (*ClientStream, error) {
	if len(method) > MaxMethodBytes {
		return nil, &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf(
			"stream to a method of %d bytes: at most %d are allowed", len(method), MaxMethodBytes)}
	}
	if err := metadata.check(); err != nil {
		return nil, err
	}
	for {
		if ctx.Err() != nil {
			return nil, contextError(ctx, false)
		}
		t, connected, err := p.streamTransport()
		if err != nil {
			return nil, err
		}
		if t == nil {
			select {
			case <-connected:
			case <-p.ctx.Done():
				return nil, ErrPoolClosed
			case <-ctx.Done():
				return nil, p.noServer(ctx)
			}
			continue
		}
		if s := t.open(ctx, method, metadata); s != nil {
			return s, nil
		}
		p.streamsEnded(t, 1) // the transport has just ended
	}
}

// streamTransport reserves a stream on the best transport. If there is none,
// connected is closed with the next connection.
func (p *Pool) streamTransport() (t *transport, connected <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.closed:
		return nil, nil, ErrPoolClosed
	case p.mu.streams >= p.options.MaxStreams:
		return nil, nil, ErrPoolBusy
	}
	var best *transport
	var full, takesNone bool
	for _, t := range p.mu.open {
		switch {
		case t.leaving || t.lost:
		case t.hello.MaxStreams == 0:
			takesNone = true
		case t.streams >= int(t.hello.MaxStreams):
			full = true
		case best == nil || p.streamsBefore(t, best):
			best = t
		}
	}
	switch {
	case best != nil:
		best.streams++
		p.mu.streams++
		best.streamed = p.now()
	case full:
		return nil, nil, ErrPoolBusy
	case takesNone:
		return nil, nil, &Error{Code: CodeUnimplemented, Message: "no server of the pool takes streams"}
	}
	return best, p.mu.connected, nil
}

// streamsBefore reports whether a stream is better opened on a than on b.
func (p *Pool) streamsBefore(a, b *transport) bool {
	if x, y := p.streamRank(a), p.streamRank(b); x != y {
		return x < y
	}
	return cmp.Or(cmp.Compare(a.streams, b.streams), cmp.Compare(a.streamed, b.streamed)) < 0
}

// streamRank ranks the server of a transport.
func (p *Pool) streamRank(t *transport) int {
	switch info := p.mu.ladder.Peer(t.peer.index); {
	case !info.Member, info.Isolated, info.Draining:
		return 3
	case info.Suspect, info.Ejected:
		return 2
	case info.Paused:
		return 1
	}
	return 0
}

// streamsEnded forgets n streams of a transport.
func (p *Pool) streamsEnded(t *transport, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.streams -= n
	p.mu.streams -= n
	p.emptied(t)
}

// learnFromStream draws the conclusions of a stream about its server.
func (p *Pool) learnFromStream(t *transport, outcome core.Outcome) {
	if outcome == core.Neutral {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ladder.RecordOutcome(p.now(), t.peer.index, outcome, &p.mu.rng)
}
