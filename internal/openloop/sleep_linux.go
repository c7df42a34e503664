package openloop

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep has the kernel wake this thread, without the 50 us by which it may be late to
// others.
func sleep(d time.Duration) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // else it is a little later
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal may end it: the caller looks at the clock
}
