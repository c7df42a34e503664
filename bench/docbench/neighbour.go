package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What may go on beside the reads.
const (
	besideNothing  = "nothing"
	besideUpdater  = "updater"  // the updater appends to the daemon's queue as fast as it can
	besideArrivals = "arrivals" // sealed segments come, as rsync brings them
)

var besides = []string{besideNothing, besideUpdater, besideArrivals}

// neighbour is what goes on beside the reads.
type neighbour struct {
	process *process // nil for none
	ended   chan error
	done    chan struct{}
	told    figures
}

// beside starts what goes on beside the reads.
func (s *docstoreStore) beside(ctx context.Context, what string, set *settings) (*neighbour, error) {
	if what == besideUpdater {
		return s.besideUpdater()
	}
	if s.arrivals == nil {
		var err error
		if s.arrivals, err = s.prepareArrivals(ctx, set); err != nil {
			return nil, err
		}
	}
	n := &neighbour{ended: make(chan error, 1), done: make(chan struct{}), told: figures{}}
	go func() { n.ended <- s.arrivals.run(n) }()
	return n, nil
}

// stop ends it and returns what is to be told of it.
func (n *neighbour) stop() (figures, error) {
	if n.process != nil {
		n.told["updater cpu"] += cpuSeconds([]*process{n.process})
		err := n.process.stop()
		return n.told, errors.Join(err, <-n.ended)
	}
	close(n.done)
	return n.told, <-n.ended
}

// updaterDocuments is how many documents are in the file that the updater is given,
// again and again.
const updaterDocuments = 100_000

// besideUpdater has the updater append to the daemon's queue as fast as it can.
func (s *docstoreStore) besideUpdater() (*neighbour, error) {
	input := filepath.Join(s.dir, "updates.ndjson")
	if _, err := os.Stat(input); errors.Is(err, fs.ErrNotExist) {
		file, err := os.Create(input)
		if err != nil {
			return nil, err
		}
		if err := writeLines(file, s.corpus, min(s.corpus.size(), updaterDocuments)); err != nil { // which closes it
			return nil, err
		}
	}
	updater, err := s.rig.command("docstore-updater")
	if err != nil {
		return nil, err
	}
	file, err := os.Open(input)
	if err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// Not within the memory of the servers: the updater has a machine of its own.
	p, err := s.rig.startWith(func(cmd *exec.Cmd) { cmd.Stdin = out }, "docstore-updater", updater,
		"append", "--queue", s.queue(), "--codec", s.codec, "--quiet")
	if err != nil {
		return nil, errors.Join(err, file.Close(), out.Close(), in.Close())
	}
	n := &neighbour{process: p, ended: make(chan error, 1), told: figures{}}
	go func() { n.ended <- errors.Join(feed(in, file), file.Close(), in.Close()) }()
	return n, out.Close() // the updater has its own
}

// feed writes a file to a pipe again and again until nobody reads it any more.
func feed(to, file *os.File) error {
	for {
		_, err := io.Copy(to, file)
		if errors.Is(err, syscall.EPIPE) {
			return nil
		}
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
	}
}

// arrivals are sealed segments that are still to come to the daemon's queue.
type arrivals struct {
	from, to string
	segments []string      // names, in order
	interval time.Duration // from one to the next
}

// arrivalBytes is the size of a segment that arrives: small, so that many do during one
// measurement; what a document costs the daemon is the same.
const arrivalBytes = 1 << 20

// prepareArrivals appends to a copy of the daemon's queue what is to come during all
// measurements.
func (s *docstoreStore) prepareArrivals(ctx context.Context, set *settings) (*arrivals, error) {
	a := &arrivals{from: filepath.Join(s.dir, "source"), to: s.queue()}
	if err := os.Mkdir(a.from, 0o755); err != nil {
		return nil, err
	}
	have, err := segmentsIn(a.to)
	if err != nil {
		return nil, err
	}
	for _, name := range have { // sealed, they never change: a link is as good as a copy
		if err := os.Link(filepath.Join(a.to, name), filepath.Join(a.from, name)); err != nil {
			return nil, err
		}
	}
	rows := len(set.callers) * len(set.batches) * len(set.distributions)
	count := int(set.arrivalRate * set.duration.Seconds() * float64(set.rounds*rows) * spareArrivals)
	if err := s.appendTo(ctx, a.from, count, "--segment-size", strconv.Itoa(arrivalBytes)); err != nil {
		return nil, err
	}
	all, err := segmentsIn(a.from)
	if err != nil {
		return nil, err
	}
	a.segments = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(have, name) })
	if len(a.segments) == 0 {
		return nil, errors.New("no segment is there to arrive")
	}
	each := float64(count) / float64(len(a.segments))
	a.interval = time.Duration(each / set.arrivalRate * float64(time.Second))
	return a, nil
}

// spareArrivals is how many times more come than the measurements should take.
const spareArrivals = 1.5

// segmentsIn lists the sealed segments of a queue, in order.
func segmentsIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".seg") {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// run lets segments come until it is told to stop.
func (a *arrivals) run(n *neighbour) error {
	start := time.Now()
	for came := 0; ; came++ {
		select {
		case <-n.done:
			n.told["segments/s"] = float64(came) / time.Since(start).Seconds()
			return nil
		case <-time.After(time.Until(start.Add(time.Duration(came+1) * a.interval))):
		}
		if len(a.segments) == 0 {
			return errors.New("all segments have come before the measurements ended")
		}
		if err := a.bring(a.segments[0]); err != nil {
			return err
		}
		a.segments = a.segments[1:]
	}
}

// bring copies a segment as rsync does: under another name first.
func (a *arrivals) bring(name string) error {
	content, err := os.ReadFile(filepath.Join(a.from, name))
	if err != nil {
		return err
	}
	half := filepath.Join(a.to, "."+name+".coming")
	if err := os.WriteFile(half, content, 0o644); err != nil {
		return err
	}
	return os.Rename(half, filepath.Join(a.to, name))
}

// measureBeside measures reads while something else goes on.
func (s *settings) measureBeside(ctx context.Context, l *load, c *contestant, what string) (figures, error) {
	if what == besideNothing {
		r, err := l.measure(c.client, c.store.processes())
		return r.figures(), err
	}
	host, ok := c.store.(interface {
		beside(ctx context.Context, what string, set *settings) (*neighbour, error)
		queue() string
	})
	if !ok {
		return nil, fmt.Errorf("nothing can go on beside %s", c.name)
	}
	bytesBefore, err := bytesIn(host.queue())
	if err != nil {
		return nil, err
	}
	n, err := host.beside(ctx, what, s)
	if err != nil {
		return nil, err
	}
	serving := c.store.processes()
	started, cpu := time.Now(), cpuSeconds(serving)
	r, err := l.measure(c.client, append(slices.Clone(serving), n.all()...))
	elapsed, cpuAfter := time.Since(started).Seconds(), cpuSeconds(serving)
	told, stopErr := n.stop()
	if err := errors.Join(err, stopErr); err != nil {
		return nil, err
	}
	bytesAfter, err := bytesIn(host.queue())
	if err != nil {
		return nil, err
	}
	f := r.figures()
	f["server us"] = (cpuAfter - cpu) * 1e6 / (r.rate * elapsed)
	f["server cpu"] = (cpuAfter - cpu) / elapsed
	f["queue bytes/s"] = float64(bytesAfter-bytesBefore) / elapsed
	for name, figure := range told {
		if f[name] = figure; name == "updater cpu" {
			f[name] /= elapsed
		}
	}
	return f, nil
}

func (n *neighbour) all() []*process {
	if n.process == nil {
		return nil
	}
	return []*process{n.process}
}
