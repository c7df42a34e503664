package openloop

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep sleeps in the kernel without the default timer slack of 50 us.
func sleep(d time.Duration) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // best effort
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal may interrupt it: the caller checks the time
}
