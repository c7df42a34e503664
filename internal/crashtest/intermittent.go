package crashtest

import (
	"sync/atomic"

	"docstore/internal/vfs"
)

// IntermittentDisk is a disk whose failures a test starts and ends.
type IntermittentDisk struct {
	*vfs.Fault
	failing atomic.Pointer[Failure] // nil: no failure
	failed  atomic.Int64
}

// NewIntermittentDisk returns disk without a failure.
func NewIntermittentDisk(disk vfs.FS) *IntermittentDisk {
	d := &IntermittentDisk{}
	d.Fault = vfs.NewFault(disk, d.before)
	return d
}

// Fail replaces the current failure. It fails the next operation that it concerns, or all
// of them if it is permanent.
func (d *IntermittentDisk) Fail(f Failure) { d.failing.Store(&f) }

// Heal ends the failure.
func (d *IntermittentDisk) Heal() { d.failing.Store(nil) }

// Failed returns the number of operations that have failed.
func (d *IntermittentDisk) Failed() int64 { return d.failed.Load() }

func (d *IntermittentDisk) before(op vfs.Op) error {
	f := d.failing.Load()
	if f == nil || !f.concerns(op.Kind) || !f.Permanent && !d.failing.CompareAndSwap(f, nil) {
		return nil
	}
	d.failed.Add(1)
	return f.of(op)
}
