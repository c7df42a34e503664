package disk

import (
	"io/fs"
	"path"
	"slices"
	"syscall"
	"time"

	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
)

// Failure describes which operations of a kind fail, and for how long.
type Failure struct {
	// Pattern is matched with the base name of the file or directory, as by path.Match. The
	// default is all names.
	Pattern string
	// Probability of each operation. The default is 1.
	Probability float64
	// Times is after how many failures no more follow. The default is no limit.
	Times int
}

// fault makes operations fail.
type fault struct {
	Failure
	failed int // guarded by mu of the Disk
	hook   func(vfs.Op, *chance.Draw) error
}

// begin adds a fault. The hook returns the error of an operation.
func (d *Disk) begin(f Failure, hook func(vfs.Op, *chance.Draw) error) (end func()) {
	added := &fault{Failure: f, hook: hook}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.faults = append(d.mu.faults, added)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.faults = slices.DeleteFunc(d.mu.faults, func(f *fault) bool { return f == added })
	}
}

// fail returns the error of an operation that a fault makes fail.
func (d *Disk) fail(op vfs.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.mu.faults {
		if f.Times > 0 && f.failed == f.Times {
			continue
		}
		if matched, err := path.Match(f.Pattern, path.Base(op.Name)); f.Pattern != "" && !matched {
			if err != nil {
				return err
			}
			continue
		}
		draw := d.chance.Next("fault " + op.Kind.String() + " " + op.Name)
		if f.Probability > 0 && !draw.Bool(f.Probability) {
			continue
		}
		if err := f.hook(op, &draw); err != nil {
			f.failed++
			return err
		}
	}
	return nil
}

func pathError(op vfs.Op, err error) error {
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: err}
}

// Full leaves the disk that many free bytes, until end is called. One such fault may be active.
func (d *Disk) Full(free int64) (end func(), err error) {
	mem := d.Files()
	left, err := mem.Free("/")
	if err != nil {
		return nil, err
	}
	mem.SetCapacity(capacity - left.Bytes + free)
	return func() { d.Files().SetCapacity(capacity) }, nil
}

// NoInodes makes operations fail that create a file or directory, until end is called.
func (d *Disk) NoInodes() (end func()) {
	count := func(n int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.noInodes += n
	}
	succeed := d.begin(Failure{}, func(op vfs.Op, _ *chance.Draw) error {
		switch op.Kind {
		case vfs.OpMkdirAll, vfs.OpLock:
			if _, err := d.mu.mem.Stat(op.Name); err == nil {
				return nil // it exists
			}
		case vfs.OpCreate, vfs.OpCreateAppendMap:
		default:
			return nil
		}
		return pathError(op, vfs.ErrNoSpace)
	})
	count(1)
	return func() {
		succeed()
		count(-1)
	}
}

// FailReads makes reads and new mappings fail with EIO, until end is called.
func (d *Disk) FailReads(f Failure) (end func()) {
	return d.begin(f, func(op vfs.Op, draw *chance.Draw) error {
		switch op.Kind {
		case vfs.OpReadAt:
			return &vfs.ShortError{Bytes: draw.Int(op.Bytes + 1), Err: pathError(op, syscall.EIO)}
		case vfs.OpMap, vfs.OpList:
			return pathError(op, syscall.EIO)
		}
		return nil
	})
}

// FailWrites makes writes and changes of names fail with EIO, until end is called. Part of a write
// may be executed.
func (d *Disk) FailWrites(f Failure) (end func()) {
	return d.begin(f, func(op vfs.Op, draw *chance.Draw) error {
		switch op.Kind {
		case vfs.OpWrite, vfs.OpWriteAt:
			return &vfs.ShortError{Bytes: draw.Int(op.Bytes + 1), Err: pathError(op, syscall.EIO)}
		case vfs.OpCreate, vfs.OpCreateAppendMap, vfs.OpRename, vfs.OpLink, vfs.OpRemove, vfs.OpRemoveAll, vfs.OpMkdirAll, vfs.OpTruncate:
			return pathError(op, syscall.EIO)
		}
		return nil
	})
}

// FailRemovals makes removals and changes of names fail with EIO, until end is called.
func (d *Disk) FailRemovals(f Failure) (end func()) {
	return d.begin(f, func(op vfs.Op, _ *chance.Draw) error {
		switch op.Kind {
		case vfs.OpRename, vfs.OpRemove, vfs.OpRemoveAll:
			return pathError(op, syscall.EIO)
		}
		return nil
	})
}

// FailSyncs makes syncs fail with EIO, until end is called. Those of a file lose its dirty pages:
// a later sync succeeds and does not write them.
func (d *Disk) FailSyncs(f Failure) (end func()) {
	return d.begin(f, func(op vfs.Op, draw *chance.Draw) error {
		switch op.Kind {
		case vfs.OpSync, vfs.OpSyncData, vfs.OpAppendSync:
			return &vfs.LostPagesError{Evicted: draw.Bool(0.5), Err: pathError(op, syscall.EIO)}
		case vfs.OpSyncDir:
			return pathError(op, syscall.EIO)
		}
		return nil
	})
}

// Slow delays each operation that takes time, until end is called.
func (d *Disk) Slow(delay time.Duration) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.slow += delay
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.slow -= delay
	}
}

// Stall makes operations that take time wait until end is called, or their process ends.
func (d *Disk) Stall() (end func()) {
	stall := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.stalls = append(slices.Clip(d.mu.stalls), stall)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		left := slices.Clone(d.mu.stalls)
		d.mu.stalls = slices.DeleteFunc(left, func(s chan struct{}) bool { return s == stall })
		close(stall)
	}
}

// FlipBit inverts a bit of a file below dir whose base name matches, also in mappings, and returns
// the name; empty: there is no such file that has a byte.
func (d *Disk) FlipBit(dir, pattern string) (name string, err error) {
	files, err := d.Find(dir, pattern)
	files = slices.DeleteFunc(files, func(f File) bool { return f.Size == 0 })
	if err != nil || len(files) == 0 {
		return "", err
	}
	draw := d.chance.Next("flip")
	file := files[draw.Int(len(files))]
	return file.Name, d.Files().FlipBit(file.Name, int64(draw.Int(int(file.Size))), uint8(draw.Int(8)))
}
