package crashtest

import (
	"sync/atomic"

	"docstore/internal/vfs"
)

// UnsteadyDisk is a disk that has one failure after another.
type UnsteadyDisk struct {
	*vfs.Fault
	failing atomic.Pointer[Failure] // nil: it is well
	failed  atomic.Int64
}

// NewUnsteadyDisk returns disk as one that is well for now.
func NewUnsteadyDisk(disk vfs.FS) *UnsteadyDisk {
	d := &UnsteadyDisk{}
	d.Fault = vfs.NewFault(disk, d.before)
	return d
}

// Fail has the next operation that a failure concerns fail, or all of them from now on,
// as it says, in the place of what failed before.
func (d *UnsteadyDisk) Fail(f Failure) { d.failing.Store(&f) }

// Heal ends the failure.
func (d *UnsteadyDisk) Heal() { d.failing.Store(nil) }

// Failed tells how many operations have failed.
func (d *UnsteadyDisk) Failed() int64 { return d.failed.Load() }

func (d *UnsteadyDisk) before(op vfs.Op) error {
	f := d.failing.Load()
	if f == nil || !f.concerns(op.Kind) || !f.ForEver && !d.failing.CompareAndSwap(f, nil) {
		return nil
	}
	d.failed.Add(1)
	return f.of(op)
}
