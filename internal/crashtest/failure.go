package crashtest

import (
	"io"
	"sync/atomic"
	"syscall"

	"docstore/internal/vfs"
)

// Failure is a kind of disk failure.
type Failure struct {
	Name string
	// Err is the error of the failing operation.
	Err error
	// Permanent: all later operations of the kind fail, too, until the disk is healed.
	Permanent bool
	// Evicts: unsynced data is dropped from memory, too.
	Evicts bool

	short    bool // half of the bytes are written or read
	loses    bool // the file's dirty pages are lost and marked clean: vfs.LostPagesError
	concerns func(vfs.OpKind) bool
}

// Failures returns all kinds of disk failure. Close does not fail: written files are
// synced before, and for read files its result does not matter.
func Failures() []Failure {
	every := func(k vfs.OpKind) bool { return k != vfs.OpClose }
	return []Failure{
		{Name: "an operation fails", Err: syscall.EIO, concerns: every},
		{Name: "the disk fails", Err: syscall.EIO, Permanent: true, concerns: every},
		{Name: "the disk is full", Err: vfs.ErrNoSpace, Permanent: true, concerns: takesSpace},
		{Name: "a write is short", Err: vfs.ErrNoSpace, short: true, concerns: writesBytes},
		{Name: "a read is short", Err: io.ErrUnexpectedEOF, short: true, concerns: func(k vfs.OpKind) bool { return k == vfs.OpReadAt }},
		{Name: "a sync fails", Err: syscall.EIO, concerns: syncs},
		{Name: "syncs fail", Err: syscall.EIO, Permanent: true, concerns: syncs},
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

// FailingDisk is a disk with one failing operation, or with all operations failing from
// one on.
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
// counted from 1. If k exceeds their number there is no failure, so a test knows that it
// has tried all of them.
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
	if n != d.at && (n < d.at || !d.failure.Permanent) {
		return nil
	}
	d.failed.Add(1)
	if op.Kind.Writes() {
		d.unwrote.Store(true)
	}
	return d.failure.of(op)
}

// of returns the error of a failing operation.
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

// Failed returns the number of operations that have failed.
func (d *FailingDisk) Failed() int64 { return d.failed.Load() }

// FailedToWrite reports whether a writing operation has failed. A program must report
// such a failure.
func (d *FailingDisk) FailedToWrite() bool { return d.unwrote.Load() }

// Heal ends the failure.
func (d *FailingDisk) Heal() { d.healed.Store(true) }
