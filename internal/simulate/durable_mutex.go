//go:build simulation

package simulate

import _ "unsafe" // for linkname

// A goroutine that waits for a mutex is not durably blocked for testing/synctest: virtual time
// stands still. Production code holds mutexes while it writes files, and simulated writes
// take virtual time, so the holder would never wake. The runtime has a table of the reasons for
// which a goroutine waits; init adds those of mutexes. It needs -ldflags=-checklinkname=0. The
// names of the reasons are looked up, so another order in another version of Go is found.

//go:linkname isIdleInSynctest runtime.isIdleInSynctest
var isIdleInSynctest [waitReasons]bool

//go:linkname waitReasonStrings runtime.waitReasonStrings
var waitReasonStrings [waitReasons]string

// waitReasons is at most the length of both tables.
const waitReasons = 30

func init() {
	found := 0
	for i, reason := range waitReasonStrings {
		switch reason {
		case "sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock":
			isIdleInSynctest[i] = true
			found++
		}
	}
	if found != 3 {
		panic("simulate: this version of Go waits for mutexes for other reasons; adapt durable_mutex.go")
	}
}
