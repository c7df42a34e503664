//go:build unix && (!linux || race)

package conn

import "syscall"

const (
	readCall = iota
	writeCall
)

// transfer reads or writes by an ordinary system call. The race detector needs one on Linux
// too, to see that a read happens after the write of its bytes.
func transfer(call int, fd int, b []byte) (int, error) {
	if call == readCall {
		return syscall.Read(fd, b)
	}
	return syscall.Write(fd, b)
}
