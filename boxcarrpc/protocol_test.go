package boxcarrpc

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
)

// A protocolModel is a client that keeps to the protocol: it decides which frames may be
// sent next and checks those of the server.
type protocolModel struct {
	t       testing.TB
	conn    *rawConn
	lanes   [4]modelLane
	streams [4]modelStream
	slots   map[uint32]bool
	awaited int // outstanding answers
}

// A modelStream is a stream to an echo handler.
type modelStream struct {
	open, ended, reset bool
	sequence           uint32
	sent, got          []byte
	credit, window     int // to send, and of the server
}

type modelLane struct {
	leased, asked bool
	slot          uint32
	sequence      uint32
	sent, total   int // of the current request; total < 0 if there is none
	cancelled     bool
	head          *wire.Response
	flags         uint8
	got           []byte
}

// FuzzProtocol interprets its input as a program of protocol steps of two bytes, the lane
// and the action. After it the connection is cut at an arbitrary byte. Every request is
// answered once, with its own bytes; every stream returns the bytes sent on it, within its
// credit, and ends with one status; no slot is granted twice; the server keeps nothing.
func FuzzProtocol(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x09\x00\x03"), uint16(3))
	f.Add([]byte("\x00\x00\x01\x00\x02\x00\x00\x01\x01\x02\x02\x01\x02\x04\x01\x05\x01\x09\x00\x03"), uint16(90))
	f.Add([]byte{0, 10, 0, 11, 0, 27, 1, 10, 0, 13, 1, 14, 0, 15, 0, 9, 0, 25, 0, 10, 0, 28}, uint16(7))
	f.Add([]byte("\x00\x00\x00\x02\x00\x05\x00\x04\x00\x09\x00\x01\x00\x04\x00\x09\x00\x06"), uint16(0))
	f.Fuzz(func(t *testing.T, program []byte, cut uint16) {
		runProtocol(t, program[:min(len(program), 400)], cut)
	})
}

func runProtocol(t testing.TB, program []byte, cut uint16) {
	s := NewServer(func(_ context.Context, method string, request, dst []byte) ([]byte, error) {
		if method == "panic" {
			panic("as asked")
		}
		return append(dst, request...), nil
	}, &ServerOptions{MaxLanes: 3, MaxStreams: 4, StreamHandler: streams, Logger: testLogger(t)})
	client, server := net.Pipe()
	ln := newPipes()
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) })
	ln.conns <- server
	require.NoError(t, client.SetDeadline(time.Now().Add(20*time.Second)))
	m := &protocolModel{t: t, conn: newRaw(t, client), slots: map[uint32]bool{}}
	m.conn.hello()
	for i := range m.lanes {
		m.lanes[i].total = -1
	}
	for i := 0; i+1 < len(program); i += 2 {
		m.step(uint32(program[i]%4), program[i+1])
	}
	for i := range m.lanes {
		m.complete(uint32(i))
	}
	for i := range m.streams {
		m.endStream(uint32(i))
	}
	for m.awaited > 0 {
		m.receive()
	}
	until(t, "the server has handled the last RELEASE", func() bool { return s.Stats().Slots == len(m.slots) })
	// A request that is cut off leaves nothing behind.
	frames := wire.AppendSlot(nil, wire.TypeLease, 9, wire.NoSlot)
	frames = wire.AppendRequest(frames, 9, wire.Request{Total: 1 << 20}, "echo", make([]byte, 100))
	if len(m.slots) < 3 {
		_, _ = client.Write(frames[:int(cut)%len(frames)])
	}
	client.Close()
	until(t, "the server has its slots back", func() bool {
		stats := s.Stats()
		return stats.Slots == 0 && stats.Streams == 0 && stats.Connections == 0 && stats.BufferBytes == 0
	})
	require.Zero(t, s.Stats().Faults)
	require.NoError(t, s.Close())
	wg.Wait()
}

// step executes one step on a lane, if the protocol allows it now.
func (m *protocolModel) step(number uint32, what byte) {
	lane := &m.lanes[number]
	idle := lane.leased && lane.total < 0
	switch what % 16 {
	case 10, 11, 12, 13, 14, 15:
		m.streamStep(number, what)
	case 0:
		if !lane.leased && !lane.asked {
			lane.asked = true
			m.awaited++
			m.conn.send(wire.AppendSlot(nil, wire.TypeLease, number, wire.NoSlot))
		}
	case 1, 2, 3:
		if idle {
			m.request(number, "echo", 1+int(what)*300, what%16 == 1)
		}
	case 4:
		if lane.total >= 0 && !lane.cancelled {
			lane.cancelled = true
			m.conn.send(wire.AppendCancel(nil, number, lane.sequence))
		}
	case 5:
		m.complete(number)
	case 6:
		if idle {
			delete(m.slots, lane.slot)
			lane.leased = false
			m.conn.send(wire.AppendRelease(nil, number))
		}
	case 7:
		if idle {
			m.request(number, "panic", 0, true)
		}
	case 8: // a late CANCEL of an ended request
		m.conn.send(wire.AppendCancel(nil, number, lane.sequence-1))
	case 9:
		if m.awaited > 0 && m.answerComes() {
			m.receive()
		}
	}
}

// answerComes reports whether an answer must arrive without another step.
func (m *protocolModel) answerComes() bool {
	for i := range m.lanes {
		l := &m.lanes[i]
		if m.streams[i].ended || m.streams[i].reset || l.asked || l.total >= 0 && (l.sent == l.total || l.cancelled) {
			return true
		}
	}
	return false
}

func (m *protocolModel) request(number uint32, method string, size int, whole bool) {
	lane := &m.lanes[number]
	lane.sequence++
	lane.total, lane.cancelled, lane.head, lane.got = size, false, nil, nil
	lane.sent = min(size, wire.RequestRoom(method))
	if !whole {
		lane.sent /= 2
	}
	m.awaited++
	m.conn.send(wire.AppendRequest(nil, number, wire.Request{Sequence: lane.sequence, Total: uint32(size)}, method,
		m.bytes(number)[:lane.sent]))
}

// bytes returns the request of the lane.
func (m *protocolModel) bytes(number uint32) []byte {
	lane := &m.lanes[number]
	tag := fmt.Appendf(nil, "%d/%d ", number, lane.sequence)
	return bytes.Repeat(tag, 1+lane.total/len(tag))[:lane.total]
}

// complete sends the rest of a request.
func (m *protocolModel) complete(number uint32) {
	lane := &m.lanes[number]
	for lane.total >= 0 && lane.sent < lane.total && !lane.cancelled {
		n := min(lane.total-lane.sent, wire.DataRoom)
		m.conn.send(wire.AppendData(nil, number, lane.sequence, m.bytes(number)[lane.sent:][:n]))
		lane.sent += n
	}
}

// receive reads one frame and checks it.
func (m *protocolModel) receive() {
	f := m.conn.next()
	require.Less(m.t, f.Lane, uint32(len(m.lanes)))
	lane := &m.lanes[f.Lane]
	if f.Type >= wire.TypeOpen {
		m.streamFrame(f)
		return
	}
	switch f.Type {
	case wire.TypeGrant:
		slot, err := f.Slot()
		require.NoError(m.t, err)
		require.True(m.t, lane.asked)
		require.False(m.t, m.slots[slot], "slot %d is granted twice", slot)
		require.Less(m.t, slot, uint32(3))
		m.slots[slot] = true
		lane.asked, lane.leased, lane.slot = false, true, slot
		m.awaited--
	case wire.TypeDeny:
		require.True(m.t, lane.asked)
		lane.asked = false
		m.awaited--
	case wire.TypeResponse:
		r, data, err := f.Response()
		require.NoError(m.t, err)
		require.Nil(m.t, lane.head, "a request is answered once")
		require.Equal(m.t, lane.sequence, r.Sequence)
		lane.head, lane.flags = &r, f.Flags
		m.data(f.Lane, data)
	case wire.TypeData:
		sequence, data, err := f.Data()
		require.NoError(m.t, err)
		require.NotNil(m.t, lane.head)
		require.Equal(m.t, lane.sequence, sequence)
		m.data(f.Lane, data)
	default:
		m.t.Fatalf("%v from the server", f.Type)
	}
}

// data appends to a response and checks it when it is complete.
func (m *protocolModel) data(number uint32, data []byte) {
	lane := &m.lanes[number]
	lane.got = append(lane.got, data...)
	if len(lane.got) < int(lane.head.Total) {
		return
	}
	switch Code(lane.head.Code) {
	case CodeOK:
		require.Equal(m.t, m.bytes(number), lane.got)
	case CodeCanceled:
		require.True(m.t, lane.cancelled)
		require.Zero(m.t, lane.flags)
	case CodeInternal:
		require.NotZero(m.t, lane.flags&wire.FlagSlotLost)
		delete(m.slots, lane.slot)
		lane.leased = false
	default:
		m.t.Fatalf("%v: %s", Code(lane.head.Code), lane.got)
	}
	lane.total = -1
	m.awaited--
}

func TestRandomProtocolPrograms(t *testing.T) {
	rng := testseed.Rand(t)
	for range 100 {
		program := make([]byte, 2*(20+rng.IntN(150)))
		for i := range program {
			program[i] = byte(rng.Uint32())
		}
		runProtocol(t, program, uint16(rng.Uint32()))
	}
}
