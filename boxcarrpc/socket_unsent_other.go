//go:build !linux && !darwin

package boxcarrpc

import "net"

func limitUnsent(*net.TCPConn) {}
