package boxcarrpc

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"docstore/boxcarrpc/internal/wire"
)

const (
	scriptedLanes   = 4
	scriptedStreams = 3
)

// A scriptedServer is a server whose every frame a test chooses: its content, its time and
// its pieces. It knows which frames it may send, and checks that its client keeps to the
// protocol. When tame is set it answers everything at once.
type scriptedServer struct {
	t  testing.TB
	wg sync.WaitGroup

	mu    sync.Mutex
	tame  bool
	conns []*scriptedConn
	calls map[string]*scriptedCall
	talks map[string]*scriptedStream
}

// A scriptedConn is a connection to it. All fields but raw and queue are guarded by the
// server's mutex.
type scriptedConn struct {
	server  *scriptedServer
	raw     *rawConn
	queue   []scriptedOutput // unsent output; used by the test's goroutine only
	hold    bool             // nothing is written unless requested
	deaf    bool             // nothing is read after the next frame
	hears   sync.Cond        // signalled when deaf is cleared
	guilty  bool             // it gave the client a reason to close the connection
	lied    bool             // the client must close the connection
	gone    bool             // the client or the server has closed it
	drained bool
	lanes   [scriptedLanes]scriptedLane
	streams [scriptedStreams]scriptedStreamState
	pongs   []uint64 // to be sent
}

// A scriptedOutput is bytes to send and a function that is called when the last of them was
// written.
type scriptedOutput struct {
	bytes []byte
	said  func()
}

// A sayer queues output, as scriptedConn.say does.
type sayer func(b []byte, said func())

type scriptedLane struct {
	asked, leased bool
	slot          uint32
	sequence      uint32
	call          *scriptedCall // nil if there is none
	method        string        // of the last request
	total, got    int           // bytes of its request
	cancelled     bool
	answer        []byte // the rest of it; valid once head was sent
	head          bool
}

type scriptedStreamState struct {
	open, ended, reset bool
	sequence           uint32
	talk               *scriptedStream
	credit, window     int // to send, and of the client
	begun, mid         bool
	got                []byte // of an incoming message
	saying             []byte // of a message
}

// patterned returns n bytes that occur nowhere else.
func patterned(tag string, n int) []byte {
	return bytes.Repeat([]byte(tag+";"), 1+n/len(tag))[:n]
}

// serve accepts connections until the listener is closed.
func (s *scriptedServer) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c := &scriptedConn{server: s, raw: newRaw(s.t, conn)}
		c.hears.L = &s.mu
		s.wg.Go(c.read)
	}
}

// read handles the frames of the client.
func (c *scriptedConn) read() {
	defer c.raw.Close()
	if f, err := c.raw.in.Next(); err != nil || f.Type != wire.TypeHello {
		return
	}
	if !c.write(wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: scriptedLanes, MaxStreams: scriptedStreams})) {
		return
	}
	s := c.server
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	for {
		f, err := c.raw.in.Next()
		s.mu.Lock()
		if err != nil {
			c.gone = true
			s.mu.Unlock()
			return
		}
		c.take(f)
		var answer []byte
		if s.tame && !c.lied {
			for _, words := range c.settle() {
				answer = append(answer, words.bytes...)
				words.said()
			}
		}
		for c.deaf {
			c.hears.Wait()
		}
		s.mu.Unlock()
		c.write(answer)
	}
}

// setDeaf stops or resumes reading. The server's mutex is held.
func (c *scriptedConn) setDeaf(deaf bool) {
	c.deaf = deaf
	c.hears.Broadcast()
}

// write writes unless the client has closed the connection. The client reads at once or
// never.
func (c *scriptedConn) write(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	_ = c.raw.SetWriteDeadline(time.Now().Add(5 * time.Second)) // fails on a closed connection only
	_, err := c.raw.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.server.t.Errorf("the client does not read")
	}
	return err == nil
}

// say queues output.
func (c *scriptedConn) say(b []byte, said func()) { c.queue = append(c.queue, scriptedOutput{b, said}) }

// pump writes n bytes of the queue. No lock is held.
func (c *scriptedConn) pump(n int) {
	for len(c.queue) > 0 && n > 0 {
		words := &c.queue[0]
		k := min(n, len(words.bytes))
		if !c.write(words.bytes[:k]) {
			c.queue = nil
			return
		}
		words.bytes, n = words.bytes[k:], n-k
		if len(words.bytes) == 0 {
			c.server.mu.Lock()
			words.said()
			c.server.mu.Unlock()
			c.queue = c.queue[1:]
		}
	}
}

// rule reports a violation of the protocol by the client.
func (c *scriptedConn) rule(kept bool, format string, args ...any) bool {
	if !kept {
		c.server.t.Errorf("the client sends "+format, args...)
	}
	return kept
}

// take handles a frame. The server's mutex is held.
func (c *scriptedConn) take(f wire.Frame) {
	switch f.Type {
	case wire.TypePing:
		token, _ := f.Ping()
		c.pongs = append(c.pongs, token)
		return
	case wire.TypePong:
		return
	case wire.TypeOpen, wire.TypeMessage, wire.TypeCredit, wire.TypeEnd, wire.TypeReset:
		if c.rule(f.Lane < scriptedStreams, "%v on stream %d", f.Type, f.Lane) {
			c.takeOnStream(f, &c.streams[f.Lane])
		}
		return
	}
	if !c.rule(f.Lane < scriptedLanes, "%v on lane %d", f.Type, f.Lane) {
		return
	}
	lane := &c.lanes[f.Lane]
	switch f.Type {
	case wire.TypeLease:
		c.rule(!lane.asked && !lane.leased, "LEASE on lane %d, which is leased or asked for", f.Lane)
		lane.asked = true
	case wire.TypeRelease:
		c.rule(lane.leased && lane.call == nil, "RELEASE of lane %d, which is not leased and idle", f.Lane)
		lane.leased = false
	case wire.TypeRequest:
		c.takeRequest(f, lane)
	case wire.TypeData:
		sequence, data, err := f.Data()
		if c.rule(err == nil && sequence == lane.sequence && !lane.cancelled, "DATA of another request: %v", err) {
			lane.take(c, data)
		}
	case wire.TypeCancel:
		sequence, err := f.Cancel()
		c.rule(err == nil && sequence == lane.sequence && !lane.cancelled, "CANCEL of another request: %v", err)
		lane.cancelled = true
	default:
		c.rule(false, "%v", f.Type)
	}
}

func (c *scriptedConn) takeRequest(f wire.Frame, lane *scriptedLane) {
	r, method, data, err := f.Request()
	call := c.server.calls[string(method)]
	if !c.rule(err == nil && lane.leased && lane.call == nil && r.Sequence != lane.sequence && call != nil && !call.came,
		"REQUEST %d of %s on lane %d: %v", r.Sequence, method, f.Lane, err) {
		return
	}
	call.came = true
	*lane = scriptedLane{leased: true, slot: lane.slot, sequence: r.Sequence, call: call, method: call.method, total: int(r.Total)}
	lane.take(c, data)
}

// take handles a part of a request, also after it was answered.
func (l *scriptedLane) take(c *scriptedConn, data []byte) {
	begin := l.got
	l.got += len(data)
	if c.rule(l.got <= l.total, "more than the request") {
		c.rule(bytes.Equal(data, patterned(l.method, l.got)[begin:]), "something else than %s", l.method)
	}
}

// ready reports whether the request on a lane may be answered with success.
func (l *scriptedLane) ready() bool { return l.call != nil && !l.head && l.got == l.total }

func (c *scriptedConn) takeOnStream(f wire.Frame, s *scriptedStreamState) {
	if f.Type == wire.TypeOpen {
		open, method, metadata, err := f.Open()
		talk := c.server.talks[string(method)]
		if c.rule(err == nil && !s.open && open.Sequence != s.sequence && talk != nil && !talk.came && string(metadata) == string(wire.AppendPair(nil, "talk", talk.method)),
			"OPEN %d of %s: %v", open.Sequence, method, err) {
			talk.came = true
			*s = scriptedStreamState{open: true, sequence: open.Sequence, talk: talk, credit: wire.Window, window: wire.Window}
		}
		return
	}
	var sequence uint32
	var err error
	switch f.Type {
	case wire.TypeMessage:
		var data []byte
		sequence, data, err = f.Message()
		if s.open && sequence == s.sequence {
			c.takeMessage(s, data, f.Flags&wire.FlagMore != 0)
		}
	case wire.TypeCredit:
		var n uint32
		sequence, n, err = f.Credit()
		if s.open && sequence == s.sequence {
			s.credit += int(n)
			c.rule(s.credit <= wire.Window, "credit for %d bytes", s.credit)
		}
	case wire.TypeEnd:
		sequence, err = f.Sequence()
		c.rule(!s.open || !s.ended && !s.reset, "END late")
		s.ended = true
	case wire.TypeReset:
		sequence, err = f.Sequence()
		c.rule(!s.open || !s.reset, "RESET twice")
		s.reset = true
	}
	c.rule(err == nil && sequence == s.sequence, "%v of another stream: %v", f.Type, err)
}

func (c *scriptedConn) takeMessage(s *scriptedStreamState, data []byte, more bool) {
	s.window -= wire.MessageCost(len(data))
	c.rule(!s.ended && s.window >= 0, "MESSAGE late or without credit")
	s.got = append(s.got, data...)
	if more {
		return
	}
	n := s.talk.heard
	c.rule(n < s.talk.messages && bytes.Equal(s.got, s.talk.message(n)), "something else than message %d of %s", n, s.talk.method)
	s.talk.heard, s.got = n+1, nil
}

// settle returns the output that the server owes. The server's mutex is held.
func (c *scriptedConn) settle() (words []scriptedOutput) {
	say := func(b []byte, said func()) { words = append(words, scriptedOutput{b, said}) }
	c.payPongs(say)
	if c.drained {
		c.drained = false
		say(wire.AppendReason(nil, wire.TypeUndrain, ""), func() {})
	}
	for i := range c.lanes {
		switch lane := &c.lanes[i]; {
		case lane.asked:
			c.grant(uint32(i), 0, say)
		case lane.head:
			c.goOn(uint32(i), len(lane.answer), say)
		case lane.ready():
			c.answer(uint32(i), 10, 10, say)
		case lane.call != nil && lane.cancelled:
			c.refuse(uint32(i), wire.Response{Code: uint32(CodeCanceled)}, 0, say)
		}
	}
	for i := range c.streams {
		s := &c.streams[i]
		if s.open && s.window < wire.Window {
			c.credit(uint32(i), wire.Window, say)
		}
		switch {
		case s.open && s.ended:
			c.status(uint32(i), CodeOK, true, say)
		case s.open && s.reset:
			c.status(uint32(i), CodeCanceled, true, say)
		}
	}
	return words
}

func (c *scriptedConn) payPongs(say sayer) {
	for _, token := range c.pongs {
		say(wire.AppendPing(nil, wire.TypePong, token), func() {})
	}
	c.pongs = nil
}

// Frames that the server may send on a lane in the right state.

func (c *scriptedConn) grant(number, from uint32, say sayer) {
	for i := 0; i < scriptedLanes; i++ {
		if l := c.lanes[i]; l.leased && l.slot == from {
			from, i = from+1, -1
		}
	}
	lane := &c.lanes[number]
	lane.asked, lane.leased, lane.slot = false, true, from
	say(wire.AppendSlot(nil, wire.TypeGrant, number, from), func() {})
}

func (c *scriptedConn) deny(number, lowest uint32, say sayer) {
	c.lanes[number].asked = false
	say(wire.AppendSlot(nil, wire.TypeDeny, number, lowest), func() {})
}

// answer starts a response of n bytes, with first bytes in the first frame.
func (c *scriptedConn) answer(number uint32, n, first int, say sayer) {
	lane := &c.lanes[number]
	call := lane.call
	data := patterned("answer "+call.method, n)
	first = min(n, first, wire.ResponseRoom)
	head := wire.Response{Sequence: lane.sequence, Total: uint32(n), Lowest: number}
	lane.head, lane.answer = true, data[first:]
	call.answer = data
	c.concluded(lane)
	say(wire.AppendResponse(nil, number, wire.FlagProcessed, head, data[:first]), func() { call.say(first == n) })
}

// goOn sends the next n bytes of a response.
func (c *scriptedConn) goOn(number uint32, n int, say sayer) {
	lane := &c.lanes[number]
	call, sequence := lane.call, lane.sequence
	for n > 0 && len(lane.answer) > 0 {
		k := min(n, len(lane.answer), wire.DataRoom)
		data := lane.answer[:k]
		lane.answer, n = lane.answer[k:], n-k
		last := len(lane.answer) == 0
		say(wire.AppendData(nil, number, sequence, data), func() { call.say(last) })
	}
	c.concluded(lane)
}

// refuse answers with an error, at any time.
func (c *scriptedConn) refuse(number uint32, r wire.Response, flags uint8, say sayer) {
	lane := &c.lanes[number]
	call := lane.call
	message := patterned("refused", 40)
	r.Sequence, r.Total, r.Lowest = lane.sequence, uint32(len(message)), wire.NoSlot
	lane.head, lane.answer = true, nil
	c.concluded(lane)
	lane.leased = flags&wire.FlagSlotLost == 0
	call.code, call.refused = Code(r.Code), flags&wire.FlagProcessed == 0
	say(wire.AppendResponse(nil, number, flags, r, message), func() { call.say(true) })
}

// concluded frees the lane when the whole response was sent.
func (c *scriptedConn) concluded(lane *scriptedLane) {
	if len(lane.answer) == 0 {
		lane.call, lane.head = nil, false
	}
}

// Frames that the server may send on an open stream.

func (c *scriptedConn) header(number uint32, say sayer) {
	s := &c.streams[number]
	s.begun = true
	say(wire.AppendHeader(nil, number, s.sequence, wire.AppendPair(nil, "header", s.talk.method)), func() {})
}

// message sends a part of a message within the credit.
func (c *scriptedConn) message(number uint32, n int, more bool, say sayer) {
	s := &c.streams[number]
	talk := s.talk
	n = min(n, wire.MessageRoom)
	if s.credit < wire.MessageCost(n) {
		return
	}
	s.credit -= wire.MessageCost(n)
	data := patterned(fmt.Sprint("said ", len(s.saying)), n)
	s.saying = append(s.saying, data...)
	var flags uint8 = wire.FlagMore
	said := func() {}
	if !more {
		flags = 0
		whole := s.saying
		s.saying = nil
		said = func() { talk.said = append(talk.said, whole) }
	}
	s.begun, s.mid = true, more
	say(wire.AppendMessage(nil, number, s.sequence, flags, data), said)
}

// credit returns up to n bytes of the credit that the client has used.
func (c *scriptedConn) credit(number uint32, n int, say sayer) {
	s := &c.streams[number]
	if n = min(n, wire.Window-s.window); n > 0 {
		s.window += n
		say(wire.AppendCredit(nil, number, s.sequence, uint32(n)), func() {})
	}
}

// status ends a stream.
func (c *scriptedConn) status(number uint32, code Code, processed bool, say sayer) {
	s := &c.streams[number]
	talk := s.talk
	if s.mid {
		code = CodeDataLoss
	}
	var flags uint8
	if processed {
		flags = wire.FlagProcessed
	}
	s.open = false
	talk.code, talk.refused, talk.trailed = code, !processed, wire.AppendPair(nil, "trailer", talk.method)
	say(wire.AppendStatus(nil, number, flags, wire.Status{Sequence: s.sequence, Code: uint32(code)}, talk.trailed),
		func() { talk.over = time.Now() })
}
