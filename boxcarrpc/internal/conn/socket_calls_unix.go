//go:build unix && (!linux || race)

package conn

import "syscall"

// Other systems use ordinary system calls. So does the race detector, which must see that
// a read happens after the write of its bytes.

func readNow(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

func writeNow(fd int, b []byte) (int, error) { return syscall.Write(fd, b) }
