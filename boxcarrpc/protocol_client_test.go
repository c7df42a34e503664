package boxcarrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// FuzzClient interprets its input as a program of two bytes a step: actions of a client's
// callers and frames of its server, in any order, in pieces, late or never, and sometimes
// in violation of the protocol. Virtual time advances as the program says.
//
// The client keeps to the protocol. Every call ends in time with the server's complete
// response, or with an error that does not promise too much; so does every stream. A
// caller's memory is not used after that. The connection ends if the server violated the
// protocol, and otherwise stays, and all calls succeed once the server behaves.
func FuzzClient(f *testing.F) {
	f.Add([]byte{6, 0, 0, 9, 8, 9, 0, 200, 10, 50, 11, 10, 11, 255})
	f.Add([]byte{6, 0, 0, 9, 20, 0, 8, 9, 21, 9, 22, 20, 0, 1, 21, 255, 3, 0, 22, 5})
	f.Add([]byte{6, 0, 6, 0, 1, 255, 1, 200, 3, 0, 12, 0, 8, 9, 23, 200, 22, 100})
	f.Add([]byte{4, 255, 4, 66, 16, 255, 13, 0, 14, 200, 15, 9, 14, 9, 17, 0, 5, 0, 17, 1})
	f.Add([]byte{6, 0, 0, 9, 23, 0, 22, 100, 6, 0, 1, 9, 19, 0, 8, 9, 19, 1, 22, 50, 19, 2})
	f.Add([]byte{6, 0, 6, 0, 18, 200, 1, 255, 2, 0, 22, 10, 18, 200, 22, 20}) // cancelled while it is sent
	f.Add([]byte{6, 0, 18, 200, 1, 255, 12, 4, 18, 200, 22, 10})              // refused while it is sent
	f.Add([]byte{4, 252, 14, 255, 22, 1, 14, 255, 22, 1, 14, 255, 22, 1, 14, 255})
	f.Add([]byte{6, 0, 0, 9, 10, 20, 23, 130}) // answered twice
	f.Add([]byte{6, 0, 0, 9, 23, 130})         // more of a response that has not started
	f.Fuzz(func(t *testing.T, program []byte) {
		runClient(t, program[:min(len(program), 400)])
	})
}

func TestRandomClientPrograms(t *testing.T) {
	rng := testseed.Rand(t)
	for i := range 150 {
		program := make([]byte, 2*(20+rng.IntN(100)))
		for k := range program {
			program[k] = byte(rng.Uint32())
			if i%2 == 0 && k%2 == 0 && program[k]%scriptedSteps >= scriptedSteps-2 {
				program[k] = 22 // a server that keeps to the protocol
			}
		}
		runClient(t, program)
		if t.Failed() {
			t.Fatalf("program %q", program)
		}
	}
}

// A scriptedCall is a call and the server's state of it.
type scriptedCall struct {
	method string
	cancel context.CancelFunc
	limit  time.Time // latest end

	// State of the caller, valid when done is closed.
	done   chan struct{}
	dst    []byte // as passed by the caller
	behind []byte // its whole capacity, filled with marks after the call
	out    []byte // a copy
	err    error
	ended  time.Time

	// State of the server.
	came     bool // a part of the request has arrived
	answer   []byte
	code     Code
	refused  bool // as not processed
	answered time.Time
}

// say records that a part of the response was sent.
func (c *scriptedCall) say(last bool) {
	if last {
		c.answered = time.Now()
	}
}

// A scriptedStream is a stream and the server's state of it.
type scriptedStream struct {
	method         string
	messages, size int // to send
	cancel         context.CancelFunc
	limit          time.Time

	// State of the client, valid when done is closed.
	done    chan struct{}
	got     [][]byte
	err     error
	trailer []byte
	ended   time.Time

	// Of the server.
	came, refused bool
	heard         int
	said          [][]byte
	code          Code
	trailed       []byte
	over          time.Time
}

func (s *scriptedStream) message(n int) []byte {
	return patterned(fmt.Sprint(s.method, "/", n), s.size)
}

// A clientRun is the run of a program.
type clientRun struct {
	*scriptedServer
	pool  *Pool
	wg    sync.WaitGroup
	calls []*scriptedCall
	talks []*scriptedStream
}

const (
	scriptedSteps = 24
	scriptedMark  = 0xa5
	scriptedSize  = 3 // slots
)

func runClient(t *testing.T, program []byte) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		server := &scriptedServer{t: t, calls: map[string]*scriptedCall{}, talks: map[string]*scriptedStream{}}
		server.wg.Go(func() { server.serve(l) })
		p, err := NewPool(discovery.Static("s"), &PoolOptions{
			Size: scriptedSize, MaxRetries: -1, MaxWait: time.Minute, MaxStreams: scriptedStreams, Dialer: l.dial, Logger: testLogger(t)})
		require.NoError(t, err)
		defer func() {
			_ = p.Close()
			l.Close()
			server.wg.Wait()
		}()
		r := &clientRun{scriptedServer: server, pool: p}
		r.pause(100 * time.Millisecond) // the client connects
		for i := 0; i+1 < len(program); i += 2 {
			r.pause(0)
			r.step(program[i]%scriptedSteps, program[i+1])
		}
		r.calmDown()
		r.check()
		r.goesOn()
		require.NoError(t, p.Close())
		require.Zero(t, p.members.buffers.used.Load())
		require.Zero(t, p.Stats().Streams)
		r.checkMarks()
	})
}

// alive returns the open connections; the next steps concern the last one. There are
// several if the server has sent the client away.
func (r *clientRun) alive() (conns []*scriptedConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		if !c.gone && !c.lied {
			conns = append(conns, c)
		}
	}
	return conns
}

// pause advances time, with keep-alives on the connections.
func (r *clientRun) pause(d time.Duration) {
	const slice = 25 * time.Millisecond
	for {
		synctest.Wait()
		for _, c := range r.alive() {
			r.mu.Lock()
			c.payPongs(c.say)
			r.mu.Unlock()
			if !c.hold {
				c.pump(math.MaxInt)
			}
			if d > 0 && (len(c.queue) > 0 || c.deaf) {
				c.guilty = true
			}
		}
		synctest.Wait()
		if d <= 0 {
			return
		}
		time.Sleep(min(d, slice))
		d -= slice
	}
}

// step executes one step, if it is possible now.
func (r *clientRun) step(what, x byte) {
	switch what {
	case 0, 1:
		r.call(int(x)*(1+999*int(what)), (1+time.Duration(x))*50*time.Millisecond, what == 1)
		return
	case 2, 3:
		r.cancel(int(x), what == 2)
		return
	case 4:
		r.talk(int(x%4), int(x>>2)*3000, (1+time.Duration(x))*50*time.Millisecond)
		return
	case 22:
		r.pause(time.Duration(x) * 10 * time.Millisecond)
		return
	}
	conns := r.alive()
	if len(conns) == 0 {
		return
	}
	c := conns[len(conns)-1]
	r.mu.Lock()
	switch {
	case what == 23:
		c.guilty, c.lied = true, true
		c.setDeaf(false)
		if x < 128 {
			c.raw.Close()
		} else {
			c.lie(x)
		}
	case what >= 18:
		c.speak(what, x)
	case what >= 13:
		if i := uint32(x) % scriptedStreams; c.streams[i].open {
			c.speakOnStream(what, x, i)
		}
	default:
		c.speakOnLane(what, x, uint32(x)%scriptedLanes)
	}
	r.mu.Unlock()
	switch {
	case what == 21:
		c.pump(int(x))
		c.hold = c.hold && x%2 == 1
	case c.lied:
		c.pump(math.MaxInt)
		r.pause(10 * ownReading)
		r.mu.Lock()
		gone := c.gone
		r.mu.Unlock()
		require.True(r.t, gone, "the client keeps the connection after protocol violation %d", x)
	}
}

func (c *scriptedConn) speakOnLane(what, x byte, i uint32) {
	switch lane := &c.lanes[i]; {
	case what == 6 && lane.asked:
		c.grant(i, uint32(x>>4), c.say)
	case what == 7 && lane.asked:
		c.deny(i, uint32(x), c.say)
	case what == 8 && lane.ready():
		c.answer(i, 3*int(x), math.MaxInt, c.say)
	case what == 9 && lane.ready():
		c.answer(i, 400*int(x), math.MaxInt, c.say)
	case what == 10 && lane.ready():
		c.answer(i, 10+400*int(x), int(x), c.say)
	case what == 11 && lane.head:
		c.goOn(i, 1+200*int(x), c.say)
	case what == 12 && lane.call != nil && !lane.head && x < 100:
		c.refuse(i, wire.Response{Code: uint32(CodeUnavailable)}, 0, c.say)
	case what == 12 && lane.ready() && x < 180:
		c.refuse(i, wire.Response{Code: uint32(CodeNotFound)}, wire.FlagProcessed, c.say)
	case what == 12 && lane.ready():
		c.refuse(i, wire.Response{Code: uint32(CodeInternal)}, wire.FlagProcessed|wire.FlagSlotLost, c.say)
	}
}

func (c *scriptedConn) speakOnStream(what, x byte, i uint32) {
	switch s := &c.streams[i]; {
	case what == 13 && !s.begun:
		c.header(i, c.say)
	case what == 14:
		for range 1 + x%4 {
			c.message(i, 150*int(x), false, c.say)
		}
	case what == 15:
		c.message(i, 150*int(x), true, c.say)
	case what == 16:
		c.credit(i, 1+2000*int(x), c.say)
	case what == 17 && x < 100:
		c.status(i, CodeOK, true, c.say)
	case what == 17 && x < 150 && !s.begun:
		c.status(i, CodeUnavailable, false, c.say)
	case what == 17 && x >= 150:
		c.status(i, CodeAborted, true, c.say)
	}
}

func (c *scriptedConn) speak(what, x byte) {
	switch {
	case what == 18 && x < 128:
		c.say(wire.AppendPing(nil, wire.TypePing, uint64(x)), func() {})
	case what == 18:
		c.setDeaf(!c.deaf)
	case what == 19 && x%8 == 0:
		c.say(wire.AppendReason(nil, wire.TypeGoAway, "odd"), func() {})
	case what == 19 && x%8 < 3:
		c.drained = x%8 == 1
		c.say(wire.AppendReason(nil, wire.TypeUndrain-wire.Type(x%8%2), "odd"), func() {})
	case what == 20:
		c.hold = true
	}
}

// lie sends a frame that violates the protocol now, and also after the client has answered
// the queued frames.
func (c *scriptedConn) lie(x byte) {
	const never = 1 << 30 // as a sequence number
	response := wire.AppendResponse(nil, 0, wire.FlagProcessed, wire.Response{Sequence: never}, nil)
	flipped := bytes.Clone(response)
	flipped[wire.HeaderSize+int(x)%(len(response)-wire.HeaderSize)] ^= 1 << (x % 8)
	lane := &c.lanes[0]
	outOfOrder := wire.AppendData(nil, 0, lane.sequence, make([]byte, 10))
	if lane.head {
		outOfOrder = wire.AppendResponse(nil, 0, wire.FlagProcessed, wire.Response{Sequence: lane.sequence}, nil)
	}
	c.say([][]byte{
		outOfOrder,
		patterned("HTTP/1.1 400 Bad Request", 100),
		make([]byte, 100),
		response,
		flipped,
		wire.AppendResponse(nil, scriptedLanes, 0, wire.Response{}, nil),
		wire.AppendResponse(nil, 0, 0, wire.Response{Sequence: lane.sequence, Total: MaxResponseBytes + 1}, nil),
		wire.AppendData(nil, 0, never, make([]byte, wire.DataRoom)),
		wire.AppendSlot(nil, wire.TypeGrant, scriptedLanes, 0),
		wire.AppendHello(nil, wire.Hello{}),
		wire.AppendSlot(nil, wire.TypeLease, 0, 1),
		wire.AppendCredit(nil, 0, never, 1),
		wire.AppendMessage(nil, 0, never, 0, nil),
	}[x%13], func() {})
}

// call starts a call.
func (r *clientRun) call(size int, patience time.Duration, roomy bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	call := &scriptedCall{method: fmt.Sprint("call ", len(r.calls)), cancel: cancel, limit: time.Now().Add(patience), done: make(chan struct{})}
	call.behind = make([]byte, 20)
	if roomy {
		call.behind = make([]byte, 120<<10)
	}
	call.dst = call.behind[:copy(call.behind, "dst")]
	r.calls = append(r.calls, call)
	r.mu.Lock()
	r.scriptedServer.calls[call.method] = call
	r.mu.Unlock()
	r.wg.Go(func() {
		defer close(call.done)
		defer cancel()
		request := patterned(call.method, size)
		out, err := r.pool.Call(ctx, call.method, request, call.dst)
		call.ended = time.Now()
		clear(request)
		call.out, call.err = bytes.Clone(out), err
		for i := range call.behind {
			call.behind[i] = scriptedMark
		}
	})
}

// talk starts a stream.
func (r *clientRun) talk(messages, size int, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	talk := &scriptedStream{method: fmt.Sprint("talk ", len(r.talks)), messages: messages, size: size,
		cancel: cancel, limit: time.Now().Add(patience), done: make(chan struct{})}
	r.talks = append(r.talks, talk)
	r.mu.Lock()
	r.scriptedServer.talks[talk.method] = talk
	r.mu.Unlock()
	r.wg.Go(func() {
		defer close(talk.done)
		defer cancel()
		st, err := r.pool.Stream(ctx, talk.method, wire.AppendPair(nil, "talk", talk.method))
		if err != nil {
			talk.err, talk.ended = err, time.Now()
			return
		}
		var sender sync.WaitGroup
		sender.Go(func() {
			for i := range messages {
				message := talk.message(i)
				if st.Send(message) != nil {
					return
				}
				clear(message)
			}
			st.CloseSend()
		})
		for {
			message, err := st.Receive(nil)
			if err != nil {
				talk.err = err
				break
			}
			talk.got = append(talk.got, message)
		}
		sender.Wait()
		talk.trailer, talk.ended = st.Trailer(), time.Now()
	})
}

// cancel cancels one of the calls or streams in flight.
func (r *clientRun) cancel(x int, call bool) {
	var alive []func()
	for _, c := range r.calls {
		if call && !isClosed(c.done) {
			alive = append(alive, func() { c.limit = time.Now(); c.cancel() })
		}
	}
	for _, s := range r.talks {
		if !call && !isClosed(s.done) {
			alive = append(alive, func() { s.limit = time.Now(); s.cancel() })
		}
	}
	if len(alive) > 0 {
		alive[x%len(alive)]()
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// calmDown makes the server behave.
func (r *clientRun) calmDown() {
	conns := r.alive()
	r.mu.Lock()
	for _, c := range conns {
		c.hold = false
		c.setDeaf(false)
	}
	r.mu.Unlock()
	r.pause(0)
	r.mu.Lock()
	r.tame = true
	for _, c := range conns {
		for _, words := range c.settle() {
			c.say(words.bytes, words.said)
		}
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.pump(math.MaxInt)
	}
	r.wg.Wait()
	synctest.Wait()
}

// check checks the results of all calls and streams.
func (r *clientRun) check() {
	var guilty uint64
	for _, c := range r.conns {
		if c.guilty {
			guilty++
		}
	}
	require.LessOrEqual(r.t, r.pool.Stats().Broken, guilty)
	for _, c := range r.calls {
		c.check(r.t)
	}
	for _, s := range r.talks {
		s.check(r.t)
	}
}

func (c *scriptedCall) check(t testing.TB) {
	require.LessOrEqual(t, c.ended, c.limit.Add(2*ownReading), c.method)
	inTime := !c.answered.IsZero() && c.answered.Before(c.limit)
	switch {
	case c.err == nil:
		require.True(t, !c.answered.IsZero() && c.code == CodeOK, "%s has a response that was not sent", c.method)
		require.Equal(t, "dst"+string(c.answer), string(c.out), c.method)
		return
	case inTime:
		require.Equal(t, c.code, CodeOf(c.err), "%s was answered in time: %v", c.method, c.err)
	}
	require.Equal(t, "dst", string(c.out), c.method)
	var e *Error
	if errors.As(c.err, &e) && !e.Processed {
		require.True(t, !c.came || c.refused, "%s may have been processed: %v", c.method, c.err)
	}
}

func (s *scriptedStream) check(t testing.TB) {
	require.LessOrEqual(t, s.ended, s.limit, s.method)
	require.LessOrEqual(t, len(s.got), len(s.said), s.method)
	for i, message := range s.got {
		require.Equal(t, string(s.said[i]), string(message), "message %d of %s", i, s.method)
	}
	inTime := !s.over.IsZero() && s.over.Before(s.limit)
	var e *Error
	switch {
	case errors.Is(s.err, io.EOF) || inTime:
		require.False(t, s.over.IsZero(), "%s has a status that was not sent", s.method)
		require.Equal(t, len(s.said), len(s.got), s.method)
		require.Equal(t, string(s.trailed), string(s.trailer), s.method)
		if s.code != CodeOK {
			require.Equal(t, s.code, CodeOf(s.err), s.method)
		} else {
			require.ErrorIs(t, s.err, io.EOF, s.method)
		}
	case errors.As(s.err, &e) && !e.Processed:
		require.True(t, !s.came || s.refused, "%s may have been processed: %v", s.method, s.err)
	}
}

// goesOn checks that calls and streams are served normally afterwards.
func (r *clientRun) goesOn() {
	calls, talks := len(r.calls), len(r.talks)
	for range 1000 {
		if r.pool.Stats().Slots == scriptedSize {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Equal(r.t, scriptedSize, r.pool.Stats().Slots)
	require.Zero(r.t, r.pool.Stats().Streams)
	for range scriptedSize {
		r.call(10, time.Minute, false)
	}
	for range scriptedStreams {
		r.talk(3, 100_000, time.Minute)
	}
	r.wg.Wait()
	r.check()
	for _, c := range r.calls[calls:] {
		require.NoError(r.t, c.err)
	}
	for _, s := range r.talks[talks:] {
		require.ErrorIs(r.t, s.err, io.EOF)
	}
}

// checkMarks finds writes to dst after the end of its call.
func (r *clientRun) checkMarks() {
	for _, c := range r.calls {
		require.Equal(r.t, len(c.behind), bytes.Count(c.behind, []byte{scriptedMark}), "dst of %s was written after the call", c.method)
	}
}
