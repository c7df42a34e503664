package boxcarrpc

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
)

// The part of the protocol model that concerns streams.

// streamStep executes one step on a stream, if the protocol allows it now.
func (m *protocolModel) streamStep(number uint32, what byte) {
	s := &m.streams[number]
	switch what % 16 {
	case 10:
		if !s.open {
			*s = modelStream{open: true, sequence: s.sequence + 1, credit: wire.Window, window: wire.Window}
			m.awaited++
			m.conn.send(wire.AppendOpen(nil, number, wire.Open{Sequence: s.sequence}, "echo", nil))
		}
	case 11, 12:
		if n := int(what) * 100; s.open && !s.ended && !s.reset && s.credit >= wire.MessageCost(n) {
			data := bytes.Repeat([]byte{what, byte(len(s.sent))}, n/2)
			s.sent = append(s.sent, data...)
			s.credit -= wire.MessageCost(n)
			m.conn.send(wire.AppendMessage(nil, number, s.sequence, what%16-11, data))
			if what%16 == 12 { // the message continues
				s.credit -= wire.MessageCost(0)
				m.conn.send(wire.AppendMessage(nil, number, s.sequence, 0, nil))
			}
		}
	case 13:
		m.endStream(number)
	case 14:
		if s.open && !s.reset {
			s.reset = true
			m.conn.send(wire.AppendSequence(nil, wire.TypeReset, number, s.sequence))
		}
	case 15: // late frames of an ended stream
		m.conn.send(wire.AppendMessage(nil, number, s.sequence-1, 0, []byte("late")),
			wire.AppendCredit(nil, number, s.sequence-1, 1),
			wire.AppendSequence(nil, wire.TypeEnd, number, s.sequence-1),
			wire.AppendSequence(nil, wire.TypeReset, number, s.sequence-1))
	}
}

// endStream sends the END of a stream.
func (m *protocolModel) endStream(number uint32) {
	if s := &m.streams[number]; s.open && !s.ended && !s.reset {
		s.ended = true
		m.conn.send(wire.AppendSequence(nil, wire.TypeEnd, number, s.sequence))
	}
}

// streamFrame checks a frame of the server and gives credit for it.
func (m *protocolModel) streamFrame(f wire.Frame) {
	s := &m.streams[f.Lane]
	require.True(m.t, s.open, "%v on a stream that is not open", f.Type)
	switch f.Type {
	case wire.TypeMessage:
		sequence, data, err := f.Message()
		require.NoError(m.t, err)
		require.Equal(m.t, s.sequence, sequence)
		s.window -= wire.MessageCost(len(data))
		require.GreaterOrEqual(m.t, s.window, 0, "the server sends without credit")
		s.got = append(s.got, data...)
		require.True(m.t, bytes.HasPrefix(s.sent, s.got))
		if s.window < wire.Window/2 {
			m.conn.send(wire.AppendCredit(nil, f.Lane, sequence, uint32(wire.Window-s.window)))
			s.window = wire.Window
		}
	case wire.TypeCredit:
		sequence, n, err := f.Credit()
		require.NoError(m.t, err)
		require.Equal(m.t, s.sequence, sequence)
		s.credit += int(n)
		require.LessOrEqual(m.t, s.credit, wire.Window)
	case wire.TypeStatus:
		status, _, err := f.Status()
		require.NoError(m.t, err)
		require.Equal(m.t, s.sequence, status.Sequence)
		require.NotZero(m.t, f.Flags&wire.FlagProcessed)
		require.True(m.t, s.ended || s.reset)
		if status.Code == uint32(CodeOK) {
			require.Equal(m.t, s.sent, s.got)
		} else {
			require.Equal(m.t, uint32(CodeCanceled), status.Code)
			require.True(m.t, s.reset)
		}
		s.open, s.ended, s.reset = false, false, false
		m.awaited--
	default:
		m.t.Fatalf("%v from the server", f.Type)
	}
}
