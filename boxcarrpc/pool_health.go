package boxcarrpc

import (
	"context"
	"errors"

	"docstore/boxcarrpc/core"
)

// checkHealth sends the checks that are due. p.mu is held.
func (p *Pool) checkHealth() {
	for {
		now := p.now()
		entry, ok := p.mu.ladder.Check(now, &p.mu.rng)
		if !ok {
			return
		}
		lane := p.picked(now, entry)
		p.checkLivenessSoon()
		p.tasks.Go(func() { p.check(lane) })
	}
}

// check asks the server of a lane how it is.
func (p *Pool) check(lane *clientLane) {
	peer := lane.transport.peer
	ctx, cancel := context.WithTimeout(p.ctx, p.options.SilenceTimeout)
	defer cancel()
	c := call{method: p.options.HealthMethod}
	_, _, err := p.exchange(ctx, lane, &c, nil)
	if err != nil && p.ctx.Err() == nil {
		p.options.Logger.Info("server is unwell", "server", peer.address, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ladder.Checked(p.now(), peer.index, err == nil, &p.mu.rng)
	p.step()
}

// overdue takes note of a server that did not answer within the caller's deadline.
// Its slot is busy until it does.
func (p *Pool) overdue(t *transport, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ladder.RecordOutcome(p.now(), t.peer.index, core.Failure, &p.mu.rng)
	p.arm()
}
