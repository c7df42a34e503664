package boxcarrpc

import "time"

// Admit takes in a request that has come by another door than the server's own, as
// one over gRPC for the same handler: Admission then bounds the requests of all doors
// together, and ServerStats, and the board tell of them. peer is who asks;
// its Identity, or else its Address, has the rate of a client. The request is in
// flight until leave is called, once. An error is an *Error of CodeResourceExhausted
// that says why the server does not take it, or what is wrong with the server's
// options; one that drains does take it, since who came by another door has not been
// told to go elsewhere.
func (s *Server) Admit(peer *Peer) (leave func(), err error) {
	if !s.usable() {
		return nil, s.invalid
	}
	if why := s.admission.enter(time.Now(), clientOf(peer)); why != taken {
		s.admission.refused[why].Add(1)
		told := refusalTable[why]
		return nil, &Error{Code: told.code, Message: told.message}
	}
	return s.admission.leave, nil
}
