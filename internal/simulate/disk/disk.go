package disk

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"

	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
)

// capacity is the size of a disk in bytes.
const capacity = 64 << 30

// errDead is the error of all operations of a process that has ended.
var errDead = errors.New("disk: the process has ended")

// Disk is the disk of a host.
type Disk struct {
	chance *chance.Chance

	mu struct {
		sync.Mutex
		mem       *vfs.Mem
		processes map[*Process]bool
		faults    map[int]func(vfs.Op) error
		last      int           // number of faults
		slow      time.Duration // of each operation
		stalled   chan struct{} // closed when operations return again; nil: they do
	}
}

// New returns an empty disk.
func New(c *chance.Chance, name string) *Disk {
	d := &Disk{chance: c.Sub(name)}
	d.mu.processes, d.mu.faults = map[*Process]bool{}, map[int]func(vfs.Op) error{}
	d.mu.mem = vfs.NewMem()
	d.mu.mem.SetCapacity(capacity)
	return d
}

// Files is the file system without latency and faults, for those who examine it. It changes with
// each power cut.
func (d *Disk) Files() *vfs.Mem {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.mem
}

// Process is the file system of a process.
type Process struct {
	*vfs.Fault
	disk *Disk

	mu struct {
		sync.Mutex
		dead    bool
		crashAt int64 // operations until it dies; 0: it does not
		power   bool  // and its power is cut
		died    func()
		locks   map[*lock]bool
	}
}

// Boot starts a process on the disk.
func (d *Disk) Boot() *Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &Process{disk: d}
	p.mu.locks = map[*lock]bool{}
	p.Fault = vfs.NewFault(d.mu.mem, p.before)
	d.mu.processes[p] = true
	return p
}

// Kill ends the process at this moment. What it has written survives.
func (p *Process) Kill() {
	p.mu.Lock()
	p.mu.dead = true
	locks := p.mu.locks
	p.mu.locks = nil
	p.mu.Unlock()
	for l := range locks {
		_ = l.Closer.Close() // the hook returns an error, and the lock is free
	}
	p.disk.mu.Lock()
	delete(p.disk.mu.processes, p)
	p.disk.mu.Unlock()
}

// PowerCut ends all processes at this moment. Of what was not synced, any part survives.
func (d *Disk) PowerCut() {
	draw := d.chance.Next("power")
	seed := draw.Uint64()
	keeps := []vfs.Keep{vfs.KeepRandom(seed), vfs.KeepTorn(seed), vfs.KeepReordered(seed), vfs.KeepSynced}
	d.mu.Lock()
	processes := d.mu.processes
	d.mu.processes = map[*Process]bool{}
	d.mu.mem = d.mu.mem.CrashClone(keeps[draw.Int(len(keeps))])
	d.mu.Unlock()
	for p := range processes {
		p.Kill()
	}
}

// CrashAt ends the process at its n-th writing operation from now on, by a power cut or like
// Kill, and then calls died on another goroutine.
func (p *Process) CrashAt(n int64, power bool, died func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.crashAt, p.mu.power, p.mu.died = n, power, died
}

// before is called before each operation.
func (p *Process) before(op vfs.Op) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := p.crash(op); err != nil {
		return err
	}
	d := p.disk
	d.wait(op)
	if err := p.check(); err != nil {
		return err
	}
	d.mu.Lock()
	faults := make([]func(vfs.Op) error, 0, len(d.mu.faults))
	for _, f := range d.mu.faults {
		faults = append(faults, f)
	}
	d.mu.Unlock()
	for _, f := range faults {
		if err := f(op); err != nil {
			return err
		}
	}
	return nil
}

func (p *Process) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.dead {
		return errDead
	}
	return nil
}

// crash ends the process if this is the operation of CrashAt. A write is torn.
func (p *Process) crash(op vfs.Op) error {
	p.mu.Lock()
	if p.mu.crashAt == 0 || !op.Kind.Writes() {
		p.mu.Unlock()
		return nil
	}
	p.mu.crashAt--
	now, power, died := p.mu.crashAt == 0, p.mu.power, p.mu.died
	p.mu.Unlock()
	if !now {
		return nil
	}
	if power {
		p.disk.PowerCut()
	} else {
		p.Kill()
	}
	go died()
	if op.Kind == vfs.OpWrite && !power && op.Bytes > 1 {
		draw := p.disk.chance.Next("torn")
		return &vfs.ShortError{Bytes: draw.Int(op.Bytes), Err: errDead}
	}
	return errDead
}

// Durations of operations.
const (
	quick  = 20 * time.Microsecond
	read   = 100 * time.Microsecond
	synced = 2 * time.Millisecond
)

// wait waits for the time that an operation takes.
func (d *Disk) wait(op vfs.Op) {
	most := quick
	switch op.Kind {
	case vfs.OpAppend, vfs.OpClose, vfs.OpAppendClose, vfs.OpFreeBytes, vfs.OpStat:
		most = 0
	case vfs.OpReadAt, vfs.OpMap:
		most = read
	case vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir, vfs.OpAppendSync:
		most = synced
	}
	d.mu.Lock()
	stalled, slow := d.mu.stalled, d.mu.slow
	d.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
	if most > 0 {
		draw := d.chance.Next(op.Kind.String())
		time.Sleep(slow + draw.Duration(most/4, most))
	}
}

// lock is a lock that ends with its process.
type lock struct {
	io.Closer
	process *Process
}

// Lock implements vfs.FS.
func (p *Process) Lock(name, holder string) (io.Closer, error) {
	held, err := p.Fault.Lock(name, holder)
	if err != nil {
		return nil, err
	}
	l := &lock{held, p}
	p.mu.Lock()
	dead := p.mu.dead
	if !dead {
		p.mu.locks[l] = true
	}
	p.mu.Unlock()
	if dead {
		_ = held.Close() // as by Kill
		return nil, errDead
	}
	return l, nil
}

// Close implements io.Closer.
func (l *lock) Close() error {
	l.process.mu.Lock()
	held := l.process.mu.locks[l]
	delete(l.process.mu.locks, l)
	l.process.mu.Unlock()
	if !held {
		return nil
	}
	return l.Closer.Close()
}

func (d *Disk) fault(hook func(vfs.Op) error) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.last++
	number := d.mu.last
	d.mu.faults[number] = hook
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.mu.faults, number)
	}
}

func pathError(op vfs.Op, err error) error {
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: err}
}

// Full leaves the disk that many free bytes, until end is called. One such fault may be active.
func (d *Disk) Full(free int64) (end func(), err error) {
	left, err := d.Files().FreeBytes("/")
	if err != nil {
		return nil, err
	}
	d.Files().SetCapacity(capacity - left + free)
	return func() { d.Files().SetCapacity(capacity) }, nil
}

// NoInodes makes operations fail that create a file or directory, until end is called.
func (d *Disk) NoInodes() (end func()) {
	return d.fault(func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpCreate, vfs.OpCreateAppendMap, vfs.OpMkdirAll:
			return pathError(op, syscall.ENOSPC)
		}
		return nil
	})
}

// FailReads makes reads of files with a matching base name fail with EIO, until end is called.
// The pattern is that of path.Match.
func (d *Disk) FailReads(pattern string) (end func()) {
	return d.fault(func(op vfs.Op) error {
		if matched, err := path.Match(pattern, path.Base(op.Name)); err != nil || !matched {
			return err
		}
		switch op.Kind {
		case vfs.OpReadAt, vfs.OpMap:
			return pathError(op, syscall.EIO)
		}
		return nil
	})
}

// FailWrites makes writes and syncs fail with a probability, until end is called. A sync that
// fails loses the pages.
func (d *Disk) FailWrites(probability float64) (end func()) {
	return d.fault(func(op vfs.Op) error {
		draw := d.chance.Next("fail " + op.Kind.String())
		if !draw.Bool(probability) {
			return nil
		}
		failed := pathError(op, syscall.EIO)
		switch op.Kind {
		case vfs.OpSync, vfs.OpSyncData, vfs.OpAppendSync:
			return &vfs.LostPagesError{Evicted: draw.Bool(0.5), Err: failed}
		case vfs.OpWrite:
			return &vfs.ShortError{Bytes: draw.Int(op.Bytes + 1), Err: failed}
		case vfs.OpCreate, vfs.OpCreateAppendMap, vfs.OpRename, vfs.OpLink, vfs.OpWriteAt, vfs.OpSyncDir, vfs.OpRemove:
			return failed
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

// Stall makes operations wait until end is called. One such fault may be active.
func (d *Disk) Stall() (end func()) {
	stalled := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.stalled = stalled
	return func() {
		d.mu.Lock()
		d.mu.stalled = nil
		d.mu.Unlock()
		close(stalled)
	}
}

// FlipBit inverts a bit of a file whose base name matches, if there is one below dir, and returns
// its name.
func (d *Disk) FlipBit(dir, pattern string) (name string, err error) {
	draw := d.chance.Next("flip")
	files, err := d.Find(dir, pattern)
	if err != nil || len(files) == 0 {
		return "", err
	}
	mem := d.Files()
	name = files[draw.Int(len(files))]
	info, err := mem.Stat(name)
	if err != nil || info.Size == 0 {
		return "", err
	}
	return name, mem.FlipBit(name, int64(draw.Int(int(info.Size))), uint8(draw.Int(8)))
}

// Find returns the files below a directory whose base name matches, sorted.
func (d *Disk) Find(dir, pattern string) (files []string, err error) {
	mem := d.Files()
	names, err := mem.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, name := range names {
		full := path.Join(dir, name)
		info, err := mem.Stat(full)
		if err != nil {
			continue // removed meanwhile
		}
		if info.Dir {
			below, err := d.Find(full, pattern)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
			continue
		}
		matched, err := path.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if matched {
			files = append(files, full)
		}
	}
	return files, err
}
