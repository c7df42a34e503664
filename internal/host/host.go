// Package host is the machine under a server: its files, network and clock. Servers reach
// them only through a Host, so that a simulator can run many of them in one process.
package host

import (
	"context"
	"net"
	"time"

	"docstore/internal/listen"
	"docstore/internal/vfs"
)

// Host is a machine. Its functions are safe for concurrent use.
type Host struct {
	FS vfs.FS
	// Listen opens a listener at HOST:PORT. Errors name the flag.
	Listen func(flag, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the wall clock, which may step.
	Now func() time.Time
}

// OS is the machine of this process.
var OS = &Host{FS: vfs.OS, Listen: listen.TCP, Dial: new(net.Dialer).DialContext, Now: time.Now}
