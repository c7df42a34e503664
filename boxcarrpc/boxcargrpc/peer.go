package boxcargrpc

import (
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"docstore/boxcarrpc"
)

// peerOf converts a peer to gRPC's type. It returns nil for nil.
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

// The authentication information of a connection with or without TLS.
var (
	secured = credentials.TLSInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	plain   = plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
)

type plainInfo struct{ credentials.CommonAuthInfo }

func (plainInfo) AuthType() string { return "insecure" }
