package vfs

import (
	"io"
	"slices"
)

// MemProcess is a Mem as one of several processes uses it. After Kill the other processes
// continue.
type MemProcess struct {
	*Mem
	open map[*memFile]bool // guarded by mu of the Mem
}

// Process returns a new process.
func (m *Mem) Process() *MemProcess {
	return &MemProcess{Mem: m, open: map[*memFile]bool{}}
}

// Kill closes the files and releases the locks of the process as the kernel does when a process
// ends: nothing is written, an append map keeps its full length, and a lock file its holder.
func (p *MemProcess) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.open {
		f.close()
	}
}

// OpenFiles returns the sorted names of the files that the process has open. A file that is open
// twice has two.
func (p *MemProcess) OpenFiles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for f := range p.open {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

// owned makes the process the owner of an open file.
func (p *MemProcess) owned(f *memFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.process = p
	p.open[f] = true
}

func (p *MemProcess) file(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	p.owned(f.(*memFile))
	return f, nil
}

// Create implements FS.
func (p *MemProcess) Create(name string) (File, error) { return p.file(p.Mem.Create(name)) }

// Open implements FS.
func (p *MemProcess) Open(name string) (File, error) { return p.file(p.Mem.Open(name)) }

// OpenAppend implements FS.
func (p *MemProcess) OpenAppend(name string) (File, error) { return p.file(p.Mem.OpenAppend(name)) }

// CreateAppendMap implements FS.
func (p *MemProcess) CreateAppendMap(name string, capacity int64) (AppendMap, error) {
	m, err := p.Mem.CreateAppendMap(name, capacity)
	if err != nil {
		return nil, err
	}
	p.owned(m.(*memAppendMap).file)
	return m, nil
}

// Lock implements FS.
func (p *MemProcess) Lock(name, holder string) (io.Closer, error) {
	l, err := p.Mem.Lock(name, holder)
	if err != nil {
		return nil, err
	}
	p.owned(l.(*memLock).file)
	return l, nil
}
