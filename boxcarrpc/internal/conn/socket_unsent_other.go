//go:build !linux && !darwin

package conn

import "net"

func limitUnsent(*net.TCPConn) {}
