package disk

import (
	"errors"
	"path"
	"sync"
	"time"

	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
)

const (
	// capacity is the size of a disk in bytes.
	capacity = 64 << 30
	// inodes is the number of its free inodes, unless it has none.
	inodes = 1 << 20
)

// errDead is the error of all operations of a process that has ended.
var errDead = errors.New("disk: the process has ended")

// Disk is the disk of a host.
type Disk struct {
	chance *chance.Chance

	mu struct {
		sync.Mutex
		mem       *vfs.Mem
		processes map[*Process]bool
		faults    []*fault
		slow      time.Duration   // of each operation
		stalls    []chan struct{} // each closed when its stall ends
		noInodes  int             // active faults
		durable   *durable
	}
}

// durable are files that power cuts must not change.
type durable struct {
	dir, pattern string
	changed      func(names []string, err error)
}

// New returns an empty disk.
func New(c *chance.Chance, name string) *Disk {
	d := &Disk{chance: c.Sub("disk").Sub(name)}
	d.mu.processes = map[*Process]bool{}
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
	disk  *Disk
	mem   *vfs.MemProcess
	end   func()        // closes ended once
	ended chan struct{} // closed when the process ends

	mu struct {
		sync.Mutex
		crashAt int64  // operations until it dies; 0: it does not
		pattern string // of the base names of files whose operations count; empty: all
		power   bool   // and its power is cut
		died    func()
	}
}

// Boot starts a process on the disk.
func (d *Disk) Boot() *Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &Process{disk: d, mem: d.mu.mem.Process(), ended: make(chan struct{})}
	p.end = sync.OnceFunc(func() { close(p.ended) })
	p.Fault = vfs.NewFault(p.mem, p.before)
	d.mu.processes[p] = true
	return p
}

// instant is the shortest time. When it is over, all operations that had passed before have ended,
// because the clock of a bubble stands still while one of its goroutines can run.
const instant = time.Nanosecond

// Free returns the free space of the disk.
func (p *Process) Free(dir string) (vfs.Space, error) {
	space, err := p.Fault.Free(dir)
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if space.Inodes = inodes; p.disk.mu.noInodes > 0 {
		space.Inodes = 0
	}
	return space, err
}

// Kill ends the process at this moment. What it has written survives.
func (p *Process) Kill() {
	p.end()
	time.Sleep(instant)
	p.mem.Kill()
	p.disk.mu.Lock()
	delete(p.disk.mu.processes, p)
	p.disk.mu.Unlock()
}

// OpenFiles returns the names of the files that the process has open. One that has ended has none.
func (p *Process) OpenFiles() []string {
	select {
	case <-p.ended:
		return nil
	default:
		return p.mem.OpenFiles()
	}
}

// PowerCut ends all processes at this moment. Of what was not synced, any part survives.
func (d *Disk) PowerCut() {
	d.endAll()
	time.Sleep(instant)
	draw := d.chance.Next("power cut")
	seed := draw.Uint64()
	keeps := []vfs.Keep{vfs.KeepRandom(seed), vfs.KeepTorn(seed), vfs.KeepReordered(seed), vfs.KeepSynced}
	d.mu.Lock()
	for p := range d.mu.processes {
		p.end() // it was started meanwhile
	}
	d.mu.processes = map[*Process]bool{}
	before := d.mu.mem
	after := before.CrashClone(keeps[draw.Int(len(keeps))])
	d.mu.mem = after
	checked := d.mu.durable
	d.mu.Unlock()
	if checked != nil {
		if names, err := different(before, after, checked.dir, checked.pattern); len(names) > 0 || err != nil {
			checked.changed(names, err)
		}
	}
}

// Durable makes power cuts call changed with the files below a directory that have other bytes
// afterwards, of those whose base name matches as by path.Match.
func (d *Disk) Durable(dir, pattern string, changed func(names []string, err error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.durable = &durable{dir, pattern, changed}
}

func (d *Disk) endAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.mu.processes {
		p.end()
	}
}

// CrashAt ends the process at its n-th writing operation from now on, by a power cut or like
// Kill, and then calls died on another goroutine. It replaces an earlier CrashAt.
func (p *Process) CrashAt(n int64, power bool, died func()) { p.CrashAtFile("", n, power, died) }

// CrashAtFile is CrashAt for the operations of files whose base name matches as by path.Match.
func (p *Process) CrashAtFile(pattern string, n int64, power bool, died func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.pattern, p.mu.crashAt, p.mu.power, p.mu.died = pattern, n, power, died
}

// before is called before each operation.
func (p *Process) before(op vfs.Op) error {
	if !p.lives() {
		return errDead
	}
	if err := p.crash(op); err != nil {
		return err
	}
	p.wait(op)
	if !p.lives() {
		return errDead
	}
	return p.disk.fail(op)
}

func (p *Process) lives() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// crash ends the process if this is the operation of CrashAt. A write may be torn.
func (p *Process) crash(op vfs.Op) error {
	if !op.Kind.Writes() {
		return nil
	}
	p.mu.Lock()
	if matched, err := path.Match(p.mu.pattern, path.Base(op.Name)); p.mu.pattern != "" && !matched {
		p.mu.Unlock()
		return err
	}
	now := p.mu.crashAt == 1
	p.mu.crashAt = max(0, p.mu.crashAt-1)
	power, died := p.mu.power, p.mu.died
	p.mu.Unlock()
	if !now {
		return nil
	}
	kill := p.Kill
	if power {
		p.disk.endAll()
		kill = p.disk.PowerCut
	}
	p.end()
	go func() {
		kill()
		died()
	}()
	switch op.Kind {
	case vfs.OpWrite, vfs.OpWriteAt, vfs.OpAppend:
		draw := p.disk.chance.Next("torn write")
		return &vfs.ShortError{Bytes: draw.Int(op.Bytes + 1), Err: errDead}
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
func (p *Process) wait(op vfs.Op) {
	most := quick
	switch op.Kind {
	case vfs.OpAppend, vfs.OpClose, vfs.OpAppendClose, vfs.OpFree, vfs.OpStat:
		return
	case vfs.OpReadAt, vfs.OpMap:
		most = read
	case vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir, vfs.OpAppendSync:
		most = synced
	}
	d := p.disk
	d.mu.Lock()
	stalls, slow := d.mu.stalls, d.mu.slow
	d.mu.Unlock()
	for _, stall := range stalls {
		select {
		case <-stall:
		case <-p.ended:
			return
		}
	}
	draw := d.chance.Next(op.Kind.String() + " " + op.Name)
	time.Sleep(slow + draw.Duration(most/4, most))
}
