package e2e

import "sync/atomic"

// disturbance is a time in which calls may fail. Its number of changes is odd during it.
type disturbance struct{ changes atomic.Int64 }

func (o *disturbance) change() { o.changes.Add(1) }

func (o *disturbance) mark() int64 { return o.changes.Load() }

// excuses reports whether a call, with the mark of its begin, may fail.
func (o *disturbance) excuses(mark int64) bool { return mark%2 == 1 || o.changes.Load() != mark }
