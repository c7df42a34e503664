package boxcargrpc

import (
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"docstore/boxcarrpc"
)

// peerOf describes a peer in gRPC's terms; nil if there is none.
func peerOf(p *boxcarrpc.Peer) *peer.Peer {
	switch {
	case p == nil:
		return nil
	case p.TLS == nil:
		return &peer.Peer{Addr: p.Address, AuthInfo: plain}
	}
	secure := secured
	secure.State = *p.TLS
	return &peer.Peer{Addr: p.Address, AuthInfo: secure}
}

// What is known of any connection with or without TLS.
var (
	secured = credentials.TLSInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	plain   = plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
)

type plainInfo struct{ credentials.CommonAuthInfo }

func (plainInfo) AuthType() string { return "insecure" }
