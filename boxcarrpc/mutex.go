package boxcarrpc

import "sync"

// A mutex is for critical sections of some tens of nanoseconds that many
// goroutines enter. A sync.Mutex that is held parks its caller at once if his
// processor has other goroutines to run, which costs more than ten such sections.
type mutex struct{ sync.Mutex }

// mutexTries is how often a held mutex is looked at before the caller is parked,
// about as long as it takes to be.
const mutexTries = 100

func (m *mutex) Lock() {
	for range mutexTries {
		if m.TryLock() {
			return
		}
	}
	m.Mutex.Lock()
}
