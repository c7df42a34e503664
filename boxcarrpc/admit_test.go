package boxcarrpc

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// What comes by another door counts with what comes by the server's own.
func TestAdmissionOfAnotherDoor(t *testing.T) {
	s := serve(t, echo, &ServerOptions{Admission: Admission{MaxInFlight: 2, ClientRate: 1e-3, ClientBurst: 3}})
	p := newPool(t, &PoolOptions{Size: 1, MaxRetries: -1}, s.address)
	full(t, p)
	here := &Peer{Address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}}
	var leaves []func()
	for range 2 {
		leave, err := s.Admit(here)
		require.NoError(t, err)
		leaves = append(leaves, leave)
	}
	require.Equal(t, 2, s.Stats().InFlight)
	refused := func(peer *Peer, reason string) {
		t.Helper()
		before := s.Stats().RefusedBy[reason]
		_, err := s.Admit(peer)
		require.Equal(t, CodeResourceExhausted, CodeOf(err))
		require.Equal(t, before+1, s.Stats().RefusedBy[reason])
	}
	refused(&Peer{Identity: "frontend"}, "in_flight")
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.Equal(t, CodeResourceExhausted, CodeOf(err), "the other door has it all")
	for _, leave := range leaves {
		leave()
	}
	require.Zero(t, s.Stats().InFlight)

	_, err = p.Call(t.Context(), "m", nil, nil)
	require.NoError(t, err, "the third of three from this address")
	refused(here, "client_rate")
	leave, err := s.Admit(&Peer{Address: here.Address, Identity: "frontend"})
	require.NoError(t, err, "whoever has an identity is not the address")
	leave()

	_, err = NewServer(nil, nil).Admit(here)
	require.ErrorContains(t, err, "a server needs a handler")
}
