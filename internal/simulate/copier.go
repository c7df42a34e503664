package simulate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/disk"
	"docstore/internal/vfs"
	"docstore/queue"
)

const (
	// copyDir is the copy of the queue on a serving machine.
	copyDir = "/copy"
	// stageDir has files until they are complete.
	stageDir = copyDir + "/.sync"
	// copyPause is the pause between two passes.
	copyPause = time.Second
	// copyChunk is the most bytes that are copied by one operation.
	copyChunk = 64 << 10
)

// errIsolated is the error of a pass while the host is cut off.
var errIsolated = errors.New("the ingest host does not answer")

// copier is docstore-sync on a serving machine, with segments in any order, as plain rsync may
// copy them. The head file is first, removals are last. Like rsync it does not check that the source
// continues the copy.
type copier struct {
	h      *serverHost
	source *disk.Process

	mu struct {
		sync.Mutex
		process *disk.Process // nil: none is running
		stopped int           // faults that stop copying
		slow    time.Duration // of a pass, in addition
	}
}

// run makes passes until the world ends. A pass that fails is followed by another process.
func (c *copier) run() {
	c.source = c.h.w.updaters[0].disk.Boot()
	defer c.source.Kill()
	for c.h.w.alive.Err() == nil {
		p := c.h.disk.Boot()
		c.mu.Lock()
		c.mu.process = p
		c.mu.Unlock()
		c.h.w.log.add(c.h.name, "copying ends: %v", c.passes(p))
		p.Kill()
		if !ctxtime.Sleep(c.h.w.alive, restartPause) {
			return
		}
	}
}

// passes is one incarnation of docstore-sync.
func (c *copier) passes(p *disk.Process) error {
	if err := p.MkdirAll(stageDir); err != nil {
		return err
	}
	if err := errors.Join(p.SyncDir(path.Dir(copyDir)), p.SyncDir(copyDir)); err != nil {
		return err
	}
	appended := "" // the open segment to which this process may append
	for ctxtime.Sleep(c.h.w.alive, copyPause) {
		c.mu.Lock()
		stopped := c.mu.stopped > 0
		c.mu.Unlock()
		if stopped {
			continue
		}
		var err error
		if appended, err = c.pass(p, appended); err != nil {
			return err
		}
	}
	return nil
}

// pass copies what the source has when the pass begins.
func (c *copier) pass(p *disk.Process, appended string) (open string, err error) {
	theirs, err := c.list(c.source, queueDir)
	if err != nil {
		return "", err
	}
	ours, err := c.list(p, copyDir)
	if err != nil {
		return "", err
	}
	if err := c.fetch(p, queue.HeadName); err != nil {
		return "", err
	}
	names := make([]string, 0, len(theirs))
	for _, f := range theirs {
		names = append(names, f.Name)
	}
	d := c.h.w.chance.Next("copy to " + c.h.name)
	for i := range names {
		j := i + d.Int(len(names)-i)
		names[i], names[j] = names[j], names[i]
	}
	c.mu.Lock()
	slow := c.mu.slow
	c.mu.Unlock()
	for _, name := range names {
		ctxtime.Sleep(c.h.w.alive, slow/time.Duration(len(names)))
		sealed := sealedName(name)
		size, here := sizeOf(ours, name)
		listed, _ := sizeOf(theirs, name)
		switch _, both := sizeOf(theirs, sealed); {
		case name == sealed && here && size == listed:
		case name == sealed:
			err = c.fetch(p, name)
		case both: // it has just been sealed
		case !here || name != appended:
			err, appended = c.fetch(p, name), name
		case listed > size:
			err = c.extend(p, name, size, listed)
		}
		if err != nil {
			return "", err
		}
	}
	return appended, c.remove(p, theirs, ours)
}

// remove removes open segments that are sealed, and with --delete what the source no longer has.
func (c *copier) remove(p *disk.Process, theirs, ours []disk.File) error {
	for _, f := range ours {
		_, there := sizeOf(theirs, f.Name)
		_, sealed := sizeOf(theirs, sealedName(f.Name))
		spare := f.Name != sealedName(f.Name) && sealed
		if spare || !there && c.h.w.config.CopyDeletes {
			if err := p.Remove(path.Join(copyDir, f.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// sealedName returns the name that a segment has when it is sealed.
func sealedName(name string) string {
	if base, open := strings.CutSuffix(name, ".open"); open {
		return base + ".seg"
	}
	return name
}

// sizeOf returns the size of a file of a list.
func sizeOf(files []disk.File, name string) (bytes int64, ok bool) {
	for _, f := range files {
		if f.Name == name {
			return f.Size, true
		}
	}
	return 0, false
}

// list returns the segments and rewrites of a directory.
func (c *copier) list(fsys vfs.FS, dir string) (files []disk.File, err error) {
	if c.h.isIsolated() {
		return nil, errIsolated
	}
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := queue.ParseFileName(name); !ok {
			continue
		}
		info, err := fsys.Stat(path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) { // sealed or removed
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, disk.File{Name: name, Size: info.Size})
	}
	return files, nil
}

// fetch copies a file to stageDir, and renames it when it is complete. A file that the source no
// longer has is no error.
func (c *copier) fetch(p *disk.Process, name string) error {
	from, err := c.source.Open(path.Join(queueDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	info, err := from.Stat()
	if err != nil {
		return err
	}
	staged := path.Join(stageDir, name)
	if err := p.Remove(staged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := p.Create(staged)
	if err != nil {
		return err
	}
	if err := errors.Join(c.copy(to, from, 0, info.Size), to.Sync(), to.Close()); err != nil {
		return err
	}
	return p.Rename(staged, path.Join(copyDir, name))
}

// extend appends the bytes that were added to an open segment, as rsync --append.
func (c *copier) extend(p *disk.Process, name string, size, listed int64) error {
	from, err := c.source.Open(path.Join(queueDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	to, err := p.OpenAppend(path.Join(copyDir, name))
	if err != nil {
		return err
	}
	return errors.Join(c.copy(to, from, size, listed), to.Close())
}

// copy copies a part of a file.
func (c *copier) copy(to io.Writer, from io.ReaderAt, begin, end int64) error {
	chunk := make([]byte, min(copyChunk, end-begin))
	for begin < end {
		if c.h.isIsolated() {
			return errIsolated
		}
		n, err := from.ReadAt(chunk[:min(int64(len(chunk)), end-begin)], begin)
		if n == 0 {
			return fmt.Errorf("copying from %d: %w", begin, err)
		}
		if _, err := to.Write(chunk[:n]); err != nil {
			return err
		}
		begin += int64(n)
	}
	return nil
}

// stop stops copying, until the result is called.
func (c *copier) stop() (proceed func()) {
	return countFault(&c.mu.Mutex, &c.mu.stopped)
}

// slowDown prolongs each pass, until the result is called.
func (c *copier) slowDown(by time.Duration) (end func()) {
	set := func(slow time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.slow = slow
	}
	set(by)
	return func() { set(0) }
}

// interrupt ends the process of the copier at its n-th writing operation from now on.
func (c *copier) interrupt(n int64) {
	c.mu.Lock()
	p := c.mu.process
	c.mu.Unlock()
	if p != nil {
		p.CrashAt(n, false, func() { c.h.w.log.add(c.h.name, "copying was interrupted") })
	}
}

// goals returns the position that a server must reach before it is ready: what the head file of its
// copy states.
func (c *copier) goals() []int {
	head, err := queue.ReadHead(c.h.disk.Files(), copyDir)
	if err != nil {
		return make([]int, c.h.w.layout.Shards)
	}
	return []int{c.h.w.account.announcedBefore(head.Time)}
}
