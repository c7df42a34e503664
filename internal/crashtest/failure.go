package crashtest

import (
	"io"
	"sync/atomic"
	"syscall"

	"docstore/internal/vfs"
)

// Failure is one in which a disk fails.
type Failure struct {
	Name string
	// Err is what the operation fails with.
	Err error
	// ForEver: so does every such operation after it, until the disk is healed.
	ForEver bool
	// Evicts: what was not synced is gone from memory, too.
	Evicts bool

	short    bool // half of the bytes are written or read
	loses    bool // the pages of the file, which pass for clean: vfs.LostPagesError
	concerns func(vfs.OpKind) bool
}

// Failures returns the failures of disks that there are. Closing a file does not fail:
// of what was read it has nothing to tell, and what was written is synced before.
func Failures() []Failure {
	every := func(k vfs.OpKind) bool { return k != vfs.OpClose }
	return []Failure{
		{Name: "an operation fails", Err: syscall.EIO, concerns: every},
		{Name: "the disk fails", Err: syscall.EIO, ForEver: true, concerns: every},
		{Name: "the disk is full", Err: vfs.ErrNoSpace, ForEver: true, concerns: takesSpace},
		{Name: "a write is short", Err: vfs.ErrNoSpace, short: true, concerns: writesBytes},
		{Name: "a read is short", Err: io.ErrUnexpectedEOF, short: true, concerns: func(k vfs.OpKind) bool { return k == vfs.OpReadAt }},
		{Name: "a sync fails", Err: syscall.EIO, concerns: syncs},
		{Name: "syncs fail", Err: syscall.EIO, ForEver: true, concerns: syncs},
		{Name: "a sync loses pages", Err: syscall.EIO, loses: true, concerns: syncsBytes},
		{Name: "a sync loses pages, and memory too", Err: syscall.EIO, loses: true, Evicts: true, concerns: syncsBytes},
	}
}

func takesSpace(k vfs.OpKind) bool {
	switch k {
	case vfs.OpCreate, vfs.OpCreateAppendMap, vfs.OpMkdirAll, vfs.OpLink, vfs.OpRename, vfs.OpLock:
		return true
	}
	return writesBytes(k)
}

func writesBytes(k vfs.OpKind) bool {
	return k == vfs.OpWrite || k == vfs.OpWriteAt || k == vfs.OpAppend
}

func syncs(k vfs.OpKind) bool { return k == vfs.OpSyncDir || syncsBytes(k) }

func syncsBytes(k vfs.OpKind) bool {
	return k == vfs.OpSync || k == vfs.OpSyncData || k == vfs.OpAppendSync
}

// FailingDisk is a disk of which one operation fails, or all from one on.
type FailingDisk struct {
	*vfs.Fault
	failure Failure
	at      int64        // the number of the first operation that fails, of those the failure concerns
	seen    atomic.Int64 // such operations
	failed  atomic.Int64
	unwrote atomic.Bool // an operation that writes has failed
	healed  atomic.Bool
}

// At returns disk with the failure at the k-th of the operations that it concerns,
// counted from 1. With k beyond the last there is no failure, which tells that every
// one was tried.
func (f Failure) At(k int64, disk vfs.FS) *FailingDisk {
	d := &FailingDisk{failure: f, at: k}
	d.Fault = vfs.NewFault(disk, d.before)
	return d
}

func (d *FailingDisk) before(op vfs.Op) error {
	if !d.failure.concerns(op.Kind) || d.healed.Load() {
		return nil
	}
	n := d.seen.Add(1)
	if n != d.at && (n < d.at || !d.failure.ForEver) {
		return nil
	}
	d.failed.Add(1)
	if op.Kind.Writes() {
		d.unwrote.Store(true)
	}
	return d.failure.of(op)
}

// of is what an operation that fails says.
func (f *Failure) of(op vfs.Op) error {
	switch {
	case f.short:
		return &vfs.ShortError{Bytes: op.Bytes / 2, Err: f.Err}
	case f.loses:
		return &vfs.LostPagesError{Evicted: f.Evicts, Err: f.Err}
	default:
		return f.Err
	}
}

// Failed tells how many operations have failed.
func (d *FailingDisk) Failed() int64 { return d.failed.Load() }

// FailedToWrite reports whether an operation that writes was among them: no program may do
// without its effect.
func (d *FailingDisk) FailedToWrite() bool { return d.unwrote.Load() }

// Heal ends the failure.
func (d *FailingDisk) Heal() { d.healed.Store(true) }
