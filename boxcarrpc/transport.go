package boxcarrpc

import (
	"net"
	"slices"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/spin"
	"docstore/boxcarrpc/internal/wire"
)

// A transport is a connection of a pool. Callers write to it and read from it in turns: see
// internal/conn and client_wait.go.
//
// Lock order: see members.
type transport struct {
	members *members
	peer    *poolPeer
	conn    net.Conn
	out     conn.Outbox
	turn    readTurn
	hello   wire.Hello // of the server
	server  *Peer

	outstanding atomic.Int32  // outstanding answers, including ends of streams, excluding PONGs
	streamSends atomic.Uint64 // frames sent on streams, which are not answered

	// Guarded by members.mu.
	leased    int // lanes that are leased or have sent a LEASE
	streams   int // streams that are open or not yet ended by the server
	liveness  core.Liveness
	idleSince int64 // when the last lane was released; meaningless while there are lanes
	leaving   bool  // gets no more lanes and closes with its last one
	thinning  bool  // it is leaving because the server needs fewer transports; its slots are used
	draining  bool  // the server grants no slots until it sends UNDRAIN
	lost      bool
	leasing   bool // a LEASE is outstanding
	suspect   bool // it is silent

	mu struct {
		spin.Mutex
		lanes   []*clientLane
		streams streamTable
		times   core.Times // response times
		err     error
		// responseBytes is a moving average of the sizes of responses.
		responseBytes int64
	}
}

// A streamTable holds the streams of a transport by number. It is guarded by the
// transport's mutex.
type streamTable struct {
	open     []*ClientStream // nil where there is none
	sequence uint32
}

// maxLanes returns the number of lanes that both sides allow.
func (t *transport) maxLanes() int {
	return min(t.members.options.LanesPerConn, int(t.hello.MaxLanes))
}

func (t *transport) frame(f wire.Frame) error {
	switch f.Type {
	case wire.TypeResponse:
		return t.takeResponse(f)
	case wire.TypeData:
		return t.takeData(f)
	case wire.TypeGrant, wire.TypeDeny:
		return t.takeAnswer(f)
	case wire.TypePing:
		token, err := f.Ping()
		// A server that sends PINGs and does not read gets no more PONGs.
		if err == nil && t.out.Below(conn.MaxReadBuffer) {
			t.out.Append(wire.AppendPing(nil, wire.TypePong, token))
			t.out.FlushSoon()
		}
		return err
	case wire.TypePong:
		t.members.takePong(t)
		t.shrink()
		return nil
	case wire.TypeGoAway, wire.TypeDrain, wire.TypeUndrain:
		reason, err := f.Reason()
		if err == nil {
			t.members.takeNotice(t, f.Type, reason)
		}
		return err
	}
	return t.streamFrame(f)
}

// shrink frees the buffers of a busy time if no answer is outstanding. The caller has the
// read turn.
func (t *transport) shrink() {
	if t.outstanding.Load() == 0 {
		t.turn.in.Shrink()
		t.out.Shrink()
	}
}

// fail closes the transport. Its slots leave the ladder before any caller is notified, so
// that no retry uses it. Only the first cause is kept.
func (t *transport) fail(cause error) {
	t.mu.Lock()
	if t.mu.err != nil {
		t.mu.Unlock()
		return
	}
	t.mu.err = cause
	t.mu.Unlock()
	conn.Close(t.conn)
	t.out.Close()
	close(t.turn.ended)
	t.members.removeTransport(t, cause)
	t.failStreams(cause)

	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lane := range t.mu.lanes {
		if lane.state == clientWaiting {
			lane.failure = cause
			lane.events <- ended
		}
	}
}

// A clientState is the state of a lane: docs/format/boxcar.md draws the transitions.
type clientState uint8

const (
	clientUnleased  clientState = iota
	clientAsking                // a LEASE was sent
	clientIdle                  // leased, without a request
	clientWaiting               // a caller waits for the response
	clientAbandoned             // the call has returned; the response is still expected
)

// A clientLane is a lane of a transport and the request on it.
type clientLane struct {
	transport *transport
	number    uint32
	events    chan event // sent to the caller: at most one watchContext, then ended

	// Guarded by slots.mu.
	entry     int32 // index in the ladder, -1 if none
	slot      int32 // slot number
	leasedAt  int64
	requests  uint64
	picked    int64 // when a call acquired it
	withdrawn bool  // the server has taken the slot back; guarded by members.mu from then on

	// Guarded by transport.mu.
	state           clientState
	sequence        uint32
	bulk            conn.Bulk
	bulky           bool // the request did not fit into one frame
	ticket          uint64
	head            bool // the first frame of the response was received
	flags           uint8
	response        wire.Response
	dst             []byte // the caller's, followed by the response so far; not touched once abandoned
	begin           int    // offset of the response in dst
	received        uint32
	overrun         bool     // the pool has no memory for the response
	charged         int64    // bytes charged to the pool's response budget
	answered        int64    // when the response was complete
	header, trailer Metadata // of the response
	failure         error    // why the transport ended
	alone           bool     // the caller waits for events only, not for its context
	visited         bool     // by one sweep of the cancel sweeper
}

// lease sends a LEASE on an unleased lane, and returns it. The caller holds members.mu, the
// transport has such a lane, and it has not ended.
func (t *transport) lease(below int32) (lane *clientLane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.mu.lanes {
		if l.state == clientUnleased {
			lane = l
			break
		}
	}
	if lane == nil {
		lane = &clientLane{
			transport: t,
			number:    uint32(len(t.mu.lanes)),
			entry:     -1,
			events:    make(chan event, 2),
		}
		t.mu.lanes = append(t.mu.lanes, lane)
	}
	lane.state = clientAsking
	t.leased++
	t.outstanding.Add(1)
	t.out.Append(wire.AppendSlot(nil, wire.TypeLease, lane.number, uint32(below)))
	t.out.FlushSoon()
	if t.turn.take() {
		t.turn.pass <- struct{}{} // no caller waits for the answer
	}
	return lane
}

// takeAnswer handles a GRANT or a DENY.
func (t *transport) takeAnswer(f wire.Frame) error {
	slot, err := f.Slot()
	if err != nil {
		return err
	}
	granted := f.Type == wire.TypeGrant
	if granted && slot == wire.NoSlot {
		return protocolError("GRANT of no slot")
	}
	t.mu.Lock()
	if int(f.Lane) >= len(t.mu.lanes) || t.mu.lanes[f.Lane].state != clientAsking {
		t.mu.Unlock()
		return protocolError("%v on lane %d, which sent no LEASE", f.Type, f.Lane)
	}
	lane := t.mu.lanes[f.Lane]
	lane.state = clientUnleased
	if granted {
		lane.state, lane.slot = clientIdle, int32(slot)
	}
	t.mu.Unlock()
	t.outstanding.Add(-1)
	t.shrink()
	t.members.leaseAnswered(lane, granted, int32(slot))
	return nil
}

// unlease sends a RELEASE for an idle lane, unless the server has taken its slot back. The
// caller holds members.mu.
func (t *transport) unlease(lane *clientLane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lane.state = clientUnleased
	t.leased--
	if lane.withdrawn {
		lane.withdrawn = false
		return
	}
	t.out.Append(wire.AppendRelease(nil, lane.number))
	t.out.FlushSoon()
}

// send sends a request on an idle lane. If the transport has ended it fails, and nothing
// was written. The response will be appended to dst. alone says that the caller waits for
// events only at first. reads reports that the caller has the read turn.
func (l *clientLane) send(method string, metadata, request, dst []byte, deadline time.Time, alone bool) (reads bool, err error) {
	t := l.transport
	t.mu.Lock()
	if err := t.mu.err; err != nil {
		t.mu.Unlock()
		return false, err
	}
	r := wire.Request{Sequence: l.sequence + 1, Total: uint32(len(request))}
	if !deadline.IsZero() {
		r.Budget = max(deadline.Sub(t.members.start)-time.Duration(l.picked), 1)
	}
	l.sequence = r.Sequence
	l.head, l.flags, l.response, l.received, l.overrun, l.failure = false, 0, wire.Response{}, 0, false, nil
	l.dst, l.begin, l.header, l.trailer = dst, len(dst), nil, nil
	l.bulky = len(request) > wire.RequestRoom(method)-wire.RequestMetadataBytes(metadata)
	l.alone, l.visited = alone, false
	l.state = clientWaiting
	only := t.outstanding.Add(1) == 1
	var writes bool
	l.ticket, writes = t.out.Request(l.number, r, method, metadata, request, &l.bulk)
	reads = only && t.turn.take()
	t.mu.Unlock()
	if writes {
		t.out.Write(!only) // others are likely to append requests, too
	}
	return reads, nil
}

// abandon gives up the response of a lane and reports false, unless the response has just
// arrived. The lane stays busy until the server has acknowledged the CANCEL.
func (l *clientLane) abandon() (tooLate bool) {
	t := l.transport
	t.mu.Lock()
	if l.state != clientWaiting || l.failure != nil {
		t.mu.Unlock()
		return true
	}
	l.state = clientAbandoned
	l.dropData()
	t.out.Cancel(l.number, l.sequence, &l.bulk)
	t.mu.Unlock()
	t.out.Flush(false)
	return false
}

// takeResponse handles a RESPONSE.
func (t *transport) takeResponse(f wire.Frame) error {
	r, data, err := f.Response()
	if err != nil {
		return err
	}
	t.mu.Lock()
	lane, err := t.awaitingLocked(f, r.Sequence, false)
	if err == nil && r.Total > MaxResponseBytes {
		err = protocolError("response of %d bytes, at most %d are allowed", r.Total, MaxResponseBytes)
	}
	if err != nil {
		t.mu.Unlock()
		return err
	}
	lane.head, lane.flags, lane.response = true, f.Flags, r
	if lane.state == clientWaiting && f.Flags&wire.FlagMetadata != 0 {
		header, trailer := f.ResponseMetadata()
		lane.header, lane.trailer = append(Metadata(nil), header...), append(Metadata(nil), trailer...)
	}
	if lane.bulky {
		t.out.Drop(&lane.bulk) // the server has answered without the rest of the request
	}
	return t.takeBytes(lane, data)
}

// takeData handles a DATA frame: more of a response.
func (t *transport) takeData(f wire.Frame) error {
	sequence, data, err := f.Data()
	if err != nil {
		return err
	}
	t.turn.bulk = true
	t.mu.Lock()
	lane, err := t.awaitingLocked(f, sequence, true)
	if err == nil && uint64(lane.received)+uint64(len(data)) > uint64(lane.response.Total) {
		err = protocolError("DATA beyond the %d bytes of the response on lane %d", lane.response.Total, f.Lane)
	}
	if err != nil {
		t.mu.Unlock()
		return err
	}
	return t.takeBytes(lane, data)
}

// awaitingLocked returns the lane if it expects this frame: the first of the response to
// its request (head is false) or another (head is true).
func (t *transport) awaitingLocked(f wire.Frame, sequence uint32, head bool) (*clientLane, error) {
	switch {
	case t.mu.err != nil:
		return nil, t.mu.err // the callers own their dst again
	case int(f.Lane) >= len(t.mu.lanes):
		return nil, protocolError("%v on lane %d, which was never leased", f.Type, f.Lane)
	}
	lane := t.mu.lanes[f.Lane]
	switch {
	case lane.state != clientWaiting && lane.state != clientAbandoned,
		lane.sequence != sequence, lane.head != head:
		return nil, protocolError("%v %d on lane %d, which does not expect it", f.Type, sequence, f.Lane)
	}
	return lane, nil
}

// takeBytes appends to a response and, if it is complete, ends its request. t.mu is held,
// and released.
func (t *transport) takeBytes(lane *clientLane, data []byte) error {
	lane.received += uint32(len(data))
	if lane.state == clientWaiting && !lane.overrun {
		if len(lane.dst)+len(data) > cap(lane.dst) {
			lane.makeRoom(len(data))
		}
		if !lane.overrun {
			lane.dst = append(lane.dst, data...)
		}
	}
	if lane.received < lane.response.Total {
		t.mu.Unlock()
		return nil
	}
	t.outstanding.Add(-1)
	abandoned := lane.state == clientAbandoned
	lane.state = clientIdle
	lost := lane.flags&wire.FlagSlotLost != 0
	lowest := int32(lane.response.Lowest)
	if !abandoned {
		t.mu.times.Add(t.turn.clock - lane.picked)
		t.mu.responseBytes += (int64(lane.received) - t.mu.responseBytes) / averageOf
	}
	t.mu.Unlock()
	if !abandoned {
		t.turn.answers++
		lane.answered = t.turn.clock
		lane.events <- ended
		return nil
	}
	t.members.slots.release(t.members.now(), lane, core.Response{Lowest: lowest}, lost)
	return nil
}

const (
	// A response up to this size is received whatever the budget holds, so that servers
	// that send long responses slowly do not make short calls fail. A pool receives at most
	// one per slot.
	freeResponse = 64 << 10
	// The buffer of a longer response starts with this size and grows as the response
	// arrives: a server that announces 32 MiB has not sent them yet.
	firstResponse = 1 << 20
	// A server may hold this fraction of the budget, and beyond it one response of any
	// size.
	serverShare = 2
)

// A responseBudget limits the memory of the responses that a pool is receiving.
type responseBudget struct {
	limit int64
	used  atomic.Int64
}

// take charges n bytes for a response that has own bytes already. held counts the bytes of
// its server.
func (b *responseBudget) take(held *atomic.Int64, own, n int64) bool {
	if b.used.Add(n) <= b.limit {
		if all := held.Add(n); all <= b.limit/serverShare || all == own+n {
			return true
		}
		held.Add(-n)
	}
	b.used.Add(-n)
	return false
}

func (b *responseBudget) give(held *atomic.Int64, n int64) {
	held.Add(-n)
	b.used.Add(-n)
}

// makeRoom grows dst for n more bytes of the response, at most to the announced size. It
// gives the response up if the pool has no memory for it.
func (l *clientLane) makeRoom(n int) {
	got := len(l.dst) - l.begin
	total := int(l.response.Total)
	want := total
	if total > freeResponse {
		want = min(total, max(firstResponse, 2*(got+n)))
		more := int64(want) - l.charged
		if !l.transport.members.buffers.take(&l.transport.peer.responses, l.charged, more) {
			l.dropData()
			l.overrun = true
			return
		}
		l.charged += more
	}
	l.dst = slices.Grow(l.dst, want-got)
}

// dropData releases the buffer of a response. The caller holds transport.mu, or owns the
// lane because its request has ended.
func (l *clientLane) dropData() {
	l.dst = nil
	if l.charged > 0 {
		l.transport.members.buffers.give(&l.transport.peer.responses, l.charged)
		l.charged = 0
	}
}
